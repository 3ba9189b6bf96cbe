"""The contract that every architecture of the zoo fulfils."""

import copy
import re
from functools import cache

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import Precision
from vsrkit.inference.engine import Engine, upscale_frames
from vsrkit.models.anatomy import Anatomy, Flow
from vsrkit.models.animesr import AnimeSRConfig
from vsrkit.models.basicvsr import BasicVSRConfig
from vsrkit.models.basicvsr_plusplus import BasicVSRPlusPlusConfig
from vsrkit.models.bicubic import BicubicConfig
from vsrkit.models.duf import DUFConfig
from vsrkit.models.edvr import EDVRConfig
from vsrkit.models.frvsr import FRVSRConfig
from vsrkit.models.iart import IARTConfig
from vsrkit.models.iconvsr import IconVSRConfig
from vsrkit.models.psrt import PSRTConfig
from vsrkit.models.rbpn import RBPNConfig
from vsrkit.models.rcan import RCANConfig
from vsrkit.models.realbasicvsr import RealBasicVSRConfig
from vsrkit.models.rrn import RRNConfig
from vsrkit.models.rsdn import RSDNConfig
from vsrkit.models.rvrt import RVRTConfig
from vsrkit.models.spec import Carried, VideoModel, Window
from vsrkit.models.spmc import SPMCConfig
from vsrkit.models.tdan import TDANConfig
from vsrkit.models.toflow import TOFlowConfig
from vsrkit.models.vespcn import VESPCNConfig
from vsrkit.models.vsrt import VSRTConfig
from vsrkit.models.vsrt_small import SmallConfig
from vsrkit.models.vsrt_stream import StreamConfig
from vsrkit.models.weights import fill
from vsrkit.models.zoo import ARCHITECTURES, load_model, save_model
from vsrkit.models.zoo.descriptor import describe_model

SMALL = {
    "bicubic": BicubicConfig(),
    "vsrt": VSRTConfig(
        frames=3,
        depth=3,
        channels=8,
        extract_blocks=1,
        tower_blocks=1,
        reconstruct_blocks=1,
        size=16,
    ),
    "vsrt-small": SmallConfig(channels=8, tower_blocks=1, attention_channels=8, segment=4),
    "vsrt-stream": StreamConfig(channels=8, blocks=1, flow_channels=8),
    "basicvsr": BasicVSRConfig(channels=8, blocks=1),
    "basicvsrpp": BasicVSRPlusPlusConfig(channels=8, blocks=1, groups=2),
    "realbasicvsr": RealBasicVSRConfig(channels=8, cleaning_blocks=1, blocks=1),
    "iconvsr": IconVSRConfig(channels=8, blocks=1, extract_blocks=1, groups=2),
    "psrt": PSRTConfig(channels=8, depths=(2,), window_heads=(2,), tail_channels=8),
    "iart": IARTConfig(channels=8, depths=(2,), window_heads=(2,), tail_channels=8),
    "rvrt": RVRTConfig(
        channels=12, groups=(1, 1, 1), depths=(1, 2, 1), window_heads=(2, 2, 2), offset_groups=2
    ),
    "edvr": EDVRConfig(channels=8, groups=2, extract_blocks=1, reconstruct_blocks=1),
    "tdan": TDANConfig(channels=8, groups=2, extract_blocks=1, reconstruct_blocks=1),
    "rcan": RCANConfig(channels=8, groups=1, blocks=2, squeeze=4),
    "toflow": TOFlowConfig(),
    "duf": DUFConfig(channels=8, growth=4, blocks=1, head_channels=8, filter_channels=8),
    "rbpn": RBPNConfig(frames=3, base_channels=8, channels=4, blocks=1),
    "frvsr": FRVSRConfig(channels=8, blocks=1),
    "rrn": RRNConfig(channels=8, blocks=1),
    "rsdn": RSDNConfig(channels=8, blocks=1),
    "animesr": AnimeSRConfig(channels=8, blocks=(3, 2, 1)),
    "vespcn": VESPCNConfig(channels=8, layers=4),
    "spmc": SPMCConfig(channels=4),
}
WITHOUT_PUBLIC_FILES = ("bicubic", "vsrt-small", "vsrt-stream")
# Tensors that no gradient reaches: PSRT moves features by whole pixels, and the authors' code of
# PSRT and IART has layers that it does not use.
FROZEN = {"psrt": r"spynet\..*|.*\.unused\..*", "iart": r".*\.unused\..*"}
FLOAT32 = Precision("float32", channels_last=False)


def test_every_architecture_has_a_small_configuration():
    assert list(SMALL) == list(ARCHITECTURES)


@cache
def small(name: str) -> nn.Module:
    """A small network of this architecture, with no layer that is initialised to zero."""
    torch.manual_seed(0)
    model = ARCHITECTURES[name].build(SMALL[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model


def clip_for(model: nn.Module, *, batch: int = 1, frames: int | None = None) -> torch.Tensor:
    """A smooth clip of a small size that the model accepts."""
    spec = model.spec
    side = spec.tile or max(8, spec.minimum)
    length = spec.context.size if isinstance(spec.context, Window) else max(3, spec.min_frames)
    coarse = torch.rand(
        batch * (frames or length), 3, 4, 4, generator=torch.Generator().manual_seed(1)
    )
    smooth = nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    return smooth.unflatten(0, (batch, -1))


def emits_all(model: nn.Module) -> bool:
    context = model.spec.context
    return not (isinstance(context, Window) and context.emits == "centre")


@pytest.mark.parametrize("name", SMALL)
def test_output_shape_follows_the_spec(name):
    model = small(name)
    clip = clip_for(model)
    assert isinstance(model, VideoModel)
    assert model.config == SMALL[name]
    with torch.no_grad():
        sr = model(clip)
        assert torch.equal(sr, model(clip))  # deterministic
    b, t, _, h, w = clip.shape
    frames = t if emits_all(model) else 1
    assert sr.shape == (b, frames, 3, h * model.spec.scale, w * model.spec.scale)
    assert sr.dtype == clip.dtype
    assert sr.isfinite().all()


@pytest.mark.parametrize("name", SMALL)
def test_clips_of_a_batch_are_independent(name):
    model = small(name)
    both = clip_for(model, batch=2)
    with torch.no_grad():
        apart = torch.cat([model(both[:1]), model(both[1:])])
        # Convolutions of another batch size may sum in another order.
        torch.testing.assert_close(model(both), apart, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in SMALL if name != "bicubic"])
def test_gradients_reach_every_parameter_and_reduce_the_loss(name):
    model = copy.deepcopy(small(name))
    clip = clip_for(model)

    def loss() -> torch.Tensor:
        return (model(clip) - 0.5).square().mean()

    before = loss()
    before.backward()
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {
        n for n, _ in model.named_parameters() if re.fullmatch(FROZEN.get(name, "$"), n)
    }
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert [n for n, p in trained.items() if p.grad is None or not p.grad.any()] == []
    length = sum(p.grad.square().sum() for p in trained.values()).sqrt()
    with torch.no_grad():
        for p in trained.values():
            p -= 1e-3 / length * p.grad
        assert loss() < before


@pytest.mark.parametrize("name", [name for name in SMALL if emits_all(small(name))])
def test_keep_equals_a_slice_of_all_frames(name):
    model = small(name)
    clip = clip_for(model)
    middle = clip.shape[1] // 2
    with torch.no_grad():
        everything = model(clip)
        for keep in (slice(middle, middle + 1), slice(0, 1), slice(middle, clip.shape[1])):
            torch.testing.assert_close(
                model(clip, keep=keep), everything[:, keep], rtol=0, atol=2e-5
            )


@pytest.mark.parametrize(
    "name", [name for name in SMALL if isinstance(small(name).spec.context, Carried)]
)
def test_steps_equal_one_call_with_the_clip(name):
    model = small(name)
    clip = clip_for(model, frames=4)
    state = model.start(clip[:, 1]) if model.spec.context.needs_second_frame else None
    results = []
    with torch.no_grad():
        for i, frame in enumerate(clip.unbind(1)):
            after = [clip[:, min(i + 1, 3)]] if model.spec.context.look_ahead else []
            sr, state = model.step(frame, state, *after)
            results.append(sr)
        assert torch.equal(torch.stack(results, 1), model(clip))


@pytest.mark.parametrize("name", SMALL)
def test_odd_sizes_give_the_same_output_for_any_chunk(name):
    engine = Engine(small(name), FLOAT32)
    shot = torch.rand(3, 3, 7, 9, generator=torch.Generator().manual_seed(2))
    scale = engine.spec.scale
    one = list(upscale_frames(shot, engine, chunk=1))
    assert [frame.shape for frame in one] == [(3, 7 * scale, 9 * scale)] * 3
    many = list(upscale_frames(shot, engine, chunk=4))
    assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))


@pytest.mark.parametrize("name", SMALL)
def test_a_shot_of_one_frame(name):
    engine = Engine(small(name), FLOAT32)
    (frame,) = upscale_frames(torch.rand(1, 3, 8, 8), engine)
    assert frame.shape[-1] == 8 * engine.spec.scale


@pytest.mark.parametrize("name", SMALL)
def test_anatomy_names_modules_that_exist_and_run(name):
    model, clip = small(name), clip_for(small(name))
    modules = dict(model.named_modules())
    assert isinstance(model.anatomy, Anatomy)
    assert model.anatomy.modules <= modules.keys()
    called = set()
    handles = [
        modules[part].register_forward_hook(lambda *_, part=part: called.add(part))
        for part in model.anatomy.modules
    ]
    with torch.no_grad():
        model(clip)
    for handle in handles:
        handle.remove()
    assert called == model.anatomy.modules


@pytest.mark.parametrize("name", [name for name in SMALL if small(name).anatomy.flow])
def test_anatomy_flow_has_the_size_of_its_frames(name):
    model = small(name)
    height, width = (side + -side % model.spec.multiple for side in (18, 21))
    a, b = torch.rand(2, 1, 3, height, width, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        found = model.anatomy.flow.between(a, b)
    assert found.shape == (1, 2, height, width)
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("targets", "frame", "expected"),
    [
        ("previous", 1, [(1, 0)]),
        ("previous", 0, []),
        ("adjacent", 1, [(1, 0), (1, 2)]),
        ("adjacent", 3, [(3, 2)]),
        ("window", 1, [(1, 0), (1, 2), (1, 3)]),
        ("from window", 2, [(0, 2), (1, 2), (3, 2)]),
    ],
)
def test_flow_pairs(targets, frame, expected):
    assert Flow(between=torch.add, targets=targets).pairs(frame, 4) == expected


class Float32Products(TorchDispatchMode):
    """Convolutions and matrix products of 16-bit tensors, accumulated in float32.

    As processors with these types do; on others, PyTorch's emulation takes seconds.
    """

    PRODUCTS = tuple(
        getattr(torch.ops.aten, name) for name in ("convolution", "mm", "bmm", "addmm", "baddbmm")
    )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket not in self.PRODUCTS:
            return func(*args, **(kwargs or {}))

        def widened(x):
            return x.float() if isinstance(x, torch.Tensor) else x

        out = func(*tree_map(widened, args), **tree_map(widened, kwargs or {}))
        return out.to(next(x.dtype for x in args if isinstance(x, torch.Tensor)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SMALL)
def test_16_bits_are_close_where_they_are_supported(name, dtype):
    model = small(name)
    one_window = isinstance(model.spec.context, Window)
    clip, found = clip_for(model, frames=1 if one_window else 3), describe_model(model)
    assert found.supports_half if dtype == torch.float16 else found.supports_bfloat16
    with Float32Products():
        rough = found(clip.to(dtype))
    assert rough.dtype == dtype
    assert rough.isfinite().all()
    # The rounding of a result close to 1 alone is up to half of eps.
    assert (rough.float() - found(clip)).abs().mean() < torch.finfo(dtype).eps


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(3, 2, 17, 23), (1, 7, 5, 8), (1, 1, 1, 1)])
def test_clips_of_any_shape_run_or_are_refused_in_one_line(name, shape):
    """Clips that are passed to the network itself; the pipeline cuts and pads them before."""
    model, (b, t, h, w) = small(name), shape
    clip = torch.rand(b, t, 3, h, w, generator=torch.Generator().manual_seed(4))
    scale = model.spec.scale
    refusal = None
    with torch.no_grad():
        try:
            sr = model(clip)
        except VsrkitError as error:
            refusal = str(error)
    if refusal:
        assert re.fullmatch(".*upscale_frames.*", refusal)  # one line; that function takes any clip
    else:
        assert sr.shape == (b, t if emits_all(model) else 1, 3, h * scale, w * scale)
        assert sr.isfinite().all()


@pytest.mark.parametrize("name", [name for name in SMALL if name != "bicubic"])  # no weights
def test_a_saved_model_loads_with_the_same_output(name, tmp_path):
    model = small(name)
    save_model(tmp_path / "it.safetensors", model)
    loaded = load_model(tmp_path / "it.safetensors")
    assert loaded.config == model.config
    clip = clip_for(model)
    with torch.no_grad():
        assert torch.equal(loaded(clip), model(clip))


@pytest.mark.parametrize("name", [name for name in SMALL if name not in WITHOUT_PUBLIC_FILES])
def test_round_trip_through_public_names(name):
    model, architecture = small(name), ARCHITECTURES[name]
    tensors = {architecture.public_name(n): v for n, v in model.state_dict().items()}
    assert len(tensors) == len(model.state_dict())
    for other, each in ARCHITECTURES.items():
        found = each.detect(each.translate(tensors))
        assert found == (model.config if other == name else None), other
    again = architecture.build(model.config).eval()
    fill(
        again,
        architecture.translate(tensors),
        source="file",
        public_name=architecture.public_name,
    )
    for (n, ours), value in zip(
        model.state_dict().items(), again.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, value), n
