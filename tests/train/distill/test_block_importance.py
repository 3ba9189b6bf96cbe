"""A teacher's answers are kept: asked once about each clip, and whole or not at all."""

import torch

from vsrkit.train.distill.block_importance import noted


def test_each_clip_is_asked_about_once(tmp_path):
    asked = []

    def answer(clips):
        asked.append(len(clips))
        return {"mean": clips.mean((2, 3, 4)), "twice": 2 * clips}

    clips = torch.rand(3, 2, 3, 4, 4)
    noted(clips[:1], answer, tmp_path)
    mixed = noted(clips, answer, tmp_path)
    again = noted(clips.flip(0), answer, tmp_path)
    assert asked == [1, 2]
    torch.testing.assert_close(mixed["twice"], 2 * clips, atol=1e-3, rtol=0)  # half precision
    assert torch.equal(again["mean"], mixed["mean"].flip(0))
    assert mixed["mean"].dtype == torch.float32


def test_half_written_answers_are_asked_for_again(tmp_path):
    clips = torch.rand(1, 2, 3, 4, 4)
    noted(clips, lambda c: {"x": c}, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:50])
    asked = []
    noted(clips, lambda c: asked.append(1) or {"x": c}, tmp_path)
    assert asked == [1]


def test_without_a_folder_nothing_is_kept(tmp_path):
    clips = torch.rand(1, 2, 3, 4, 4)
    assert torch.equal(noted(clips, lambda c: {"x": c}, None)["x"], clips)
    assert not list(tmp_path.iterdir())


def test_answers_can_be_asked_for_in_mixed_precision(tmp_path):
    clips = torch.rand(2, 2, 3, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        found = noted(clips, lambda c: {"x": c.bfloat16()}, tmp_path)
        assert noted(clips, lambda c: {}, tmp_path)["x"].dtype == torch.float32
    torch.testing.assert_close(found["x"], clips, atol=5e-3, rtol=0)  # eight bits
