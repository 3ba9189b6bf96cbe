"""Stored recurrent states come back as they were."""

import torch

from vsrkit.upscale.stored_states import pack_states, unpack_states


def test_states_keep_their_values_types_and_layouts():
    plain = torch.rand(1, 3, 4, 5)
    wide = torch.rand(1, 8, 4, 5).bfloat16().contiguous(memory_format=torch.channels_last)
    states = [(plain + tile, wide + tile) for tile in range(11)]  # more than one digit
    found = unpack_states(pack_states(states), states[0], "cpu")
    assert len(found) == 11
    for state, again in zip(states, found, strict=True):
        assert isinstance(again, tuple)
        for one, other in zip(state, again, strict=True):
            assert torch.equal(one, other)
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())


def test_a_state_can_be_one_tensor():
    (found,) = unpack_states(pack_states([torch.ones(1, 2, 3, 4)]), torch.ones(1), "cpu")
    assert torch.equal(found, torch.ones(1, 2, 3, 4))
