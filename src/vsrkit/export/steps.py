"""The step functions of recurrent models, and how each model chains them.

Each class below holds the parts of a model that one step runs. Missing neighbours need no special
case: their features are zeros, which stay zeros when they are warped, and attention takes `exists`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsrkit.errors import VsrkitError
from vsrkit.export.chain import Call, Chain, Value
from vsrkit.export.rewrites import Projected, WholeFrameAttention
from vsrkit.models.animesr import MULTIPLE as ANIMESR_MULTIPLE
from vsrkit.models.animesr import AnimeSR
from vsrkit.models.animesr import State as AnimeSRState
from vsrkit.models.basicvsr import BasicVSR
from vsrkit.models.frvsr import FRVSR
from vsrkit.models.layers import flow as flows
from vsrkit.models.layers.blocks import joined, upsample_bilinear
from vsrkit.models.layers.hypothesis_attention import Aligned, attend_to_frames
from vsrkit.models.layers.resample import enlarge_flow, reduce_to_grid, stack_pixels, warp_stacked
from vsrkit.models.realbasicvsr import RealBasicVSR
from vsrkit.models.rrn import RRN
from vsrkit.models.rrn import State as RRNState
from vsrkit.models.rsdn import RSDN
from vsrkit.models.rsdn import State as RSDNState
from vsrkit.models.vsrt_small import VSRTSmall
from vsrkit.models.vsrt_stream import STACK, VSRTStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The step functions of a model by name, their chain, and what sides must be multiples of."""

    functions: Mapping[str, nn.Module]
    chain: Chain
    multiple: int = 1


def steps_of(model: nn.Module) -> Steps:
    """The steps of a recurrent model, which `rewrites.exportable` has prepared."""
    match model:
        case VSRTSmall() if model.config.propagation == "carried" and model.encoder is None:
            return _vsrt_small(model)
        case VSRTStream():
            return _vsrt_stream(model)
        case BasicVSR():
            return _basicvsr(model)
        case RealBasicVSR():
            return _realbasicvsr(model)
        case FRVSR() | RRN() | RSDN() | AnimeSR():
            return _carried(model)
    raise VsrkitError(
        f"{type(model).__name__} cannot be exported as step functions; "
        "export a window of frames instead: --window 5"
    )


class PairFlow(nn.Module):
    """Flow between two neighbouring frames on the grid, in both directions."""

    def __init__(self, model: VSRTSmall) -> None:
        super().__init__()
        self.model = model

    def forward(self, frame: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """(1, 3, H, W) twice -> flows to the next and to the previous frame."""
        stack = self.model.config.stack
        return self.model._pair(reduce_to_grid(frame, stack), reduce_to_grid(after, stack))


class ChainStep(nn.Module):
    """One step of a chain: the features of the last frame, warped, and this frame, to features."""

    def __init__(self, model: VSRTSmall, tower: nn.Module) -> None:
        super().__init__()
        self.tower, self.stack = tower, model.config.stack

    def forward(self, frame: Tensor, flow: Tensor, features: Tensor) -> Tensor:
        """(1, 3, H, W), (1, 2, H, W) and (1, C, H, W) -> (1, C, H, W), on the grid."""
        near = warp_stacked(features, flow, self.stack)
        done: Tensor = self.tower(joined(stack_pixels(frame, self.stack), near))
        return done


class HypothesisStep(ChainStep):
    """The same for chains that choose between the last two frames."""

    def forward(  # type: ignore[override]
        self,
        frame: Tensor,
        last: Tensor,
        before: Tensor,
        flow: Tensor,
        last_flow: Tensor,
        features: Tensor,
        features_before: Tensor,
        exists_before: Tensor,
    ) -> Tensor:
        """`last` and `before` are the last two frames of the chain, (1, 3, H, W)."""
        grid, grey, grey_before = (stack_pixels(x, self.stack) for x in (frame, last, before))
        grey, grey_before = (x.mean(1, keepdim=True) for x in (grey, grey_before))
        older = Aligned(grey_before, features_before, None)
        aligned = Aligned(grey, features, last_flow, older)
        both = attend_to_frames(grid.mean(1, keepdim=True), flow, aligned)
        near = torch.where(exists_before > 0, both, flows.warp(features, flow))
        done: Tensor = self.tower(joined(grid, near))
        return done


class Fuse(nn.Module):
    """Both chains' features joined; with attention, also queries, keys and values."""

    def __init__(self, model: VSRTSmall) -> None:
        super().__init__()
        self.model = model

    def forward(self, backward: Tensor, forward: Tensor) -> tuple[Tensor, ...]:
        """(1, C, H, W) twice -> (1, C, H, W), and with attention (1, 3c, H, W)."""
        fused = self.model.fuse(backward, forward)
        attention = self.model.attention
        if not isinstance(attention, WholeFrameAttention):
            return (fused,)
        return fused, attention.project(fused).qkv


class Reconstruct(nn.Module):
    """Attention to the frames nearby, head, tail."""

    def __init__(self, model: VSRTSmall) -> None:
        super().__init__()
        self.model = model

    def forward(self, frame: Tensor, fused: Tensor, *near: Tensor) -> Tensor:
        """Frame (1, 3, H, W) and features (1, C, H, W) -> (1, 3, sH, sW).

        near: qkv of the frames in reach, earliest first, then `exists` of all but the frame itself
        """
        model, reach = self.model, self.model.config.reach
        if isinstance(model.attention, WholeFrameAttention):
            distances = range(-reach, reach + 1)
            exists = iter(near[len(distances) :])
            projected = {
                distance: Projected(qkv, next(exists) if distance else None)
                for distance, qkv in zip(distances, near, strict=False)
            }
            fused = fused + model.attention(projected[0], projected)
        return upsample_bilinear(frame, model.spec.scale) + model.tail(model.head(fused))


def _vsrt_small(model: VSRTSmall) -> Steps:
    c, s, reach = model.config.channels, model.config.stack, model.config.reach
    both_frames = model.config.frame_hypotheses
    step = HypothesisStep if both_frames else ChainStep
    attends = model.attention is not None
    distances = [d for d in range(-reach, reach + 1) if attends]
    near = {f"qkv_{_word(d)}": f"qkv{_at(d)}" for d in distances}
    near |= {f"exists_{_word(d)}": f"exists{_at(d)}" for d in distances if d}
    chains = (("backward", "flow_to_next", 1), ("forward", "flow_to_prev", -1))
    calls = [
        Call(
            step="flow",
            inputs={"frame": "frame[t]", "after": "frame[t+1]"},
            outputs={"to_next": "flow_to_next[t]", "to_prev": "flow_to_prev[t+1]"},
            pairs=True,
        )
    ]
    for name, flow, to in chains:
        if both_frames:
            inputs = {
                "frame": "frame[t]",
                "last": f"frame{_at(to)}",
                "before": f"frame{_at(2 * to)}",
                "flow": f"{flow}[t]",
                "last_flow": f"{flow}{_at(to)}",
                "features": f"{name}{_at(to)}",
                "features_before": f"{name}{_at(2 * to)}",
                "exists_before": f"exists{_at(2 * to)}",
            }
        else:
            inputs = {"frame": "frame[t]", "flow": f"{flow}[t]", "features": f"{name}{_at(to)}"}
        order = "backward" if name == "backward" else "forward"
        calls.append(
            Call(step=name, inputs=inputs, outputs={"result": f"{name}[t]"}, order=order)  # type: ignore[arg-type]
        )
    fused = {"fused": "fused[t]"} | ({"qkv": "qkv[t]"} if attends else {})
    calls += [
        Call(
            step="fuse",
            inputs={"backward": "backward[t]", "forward": "forward[t]"},
            outputs=fused,
        ),
        Call(
            step="reconstruct",
            inputs={"frame": "frame[t]", "fused": "fused[t]", **near},
            outputs={"output": "output[t]"},
        ),
    ]
    values = {name: Value(channels=c, scale=1 / s) for name in ("backward", "forward", "fused")}
    values |= {flow: Value(channels=2, scale=1 / s) for _, flow, _ in chains}
    if isinstance(model.attention, WholeFrameAttention):
        width = model.attention.attention.to_qkv.out_channels
        values["qkv"] = Value(channels=width, scale=1 / s)
    functions = {
        "flow": PairFlow(model),
        "backward": step(model, model.backward_tower),
        "forward": step(model, model.forward_tower),
        "fuse": Fuse(model),
        "reconstruct": Reconstruct(model),
    }
    return Steps(functions=functions, chain=Chain(calls=tuple(calls), values=values), multiple=s)


class StreamStep(nn.Module):
    """`vsrt-xs`: one frame and what the last one left."""

    def __init__(self, model: VSRTStream) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, frame: Tensor, last: Tensor, features: Tensor, exists: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Frames (1, 3, H, W), features of the last one -> result, features."""
        model = self.model
        flow, _ = model.flow(*(reduce_to_grid(x, STACK) for x in (frame, last)))
        grid = stack_pixels(frame, STACK)
        moved = flows.warp(last, enlarge_flow(flow, STACK), padding="border")
        pixels = torch.where(exists > 0, stack_pixels(moved, STACK), grid)
        near = warp_stacked(features, flow, STACK)
        found = model.forward_tower(joined(torch.cat([grid, pixels], 1), near))
        return upsample_bilinear(frame, 4) + model.tail(found), found


def _vsrt_stream(model: VSRTStream) -> Steps:
    call = Call(
        step="step",
        inputs={
            "frame": "frame[t]",
            "last": "frame[t-1]",
            "features": "features[t-1]",
            "exists": "exists[t-1]",
        },
        outputs={"output": "output[t]", "result": "features[t]"},
    )
    values = {"features": Value(channels=model.config.channels, scale=1 / STACK)}
    chain = Chain(calls=(call,), values=values)
    return Steps(functions={"step": StreamStep(model)}, chain=chain, multiple=STACK)


class BasicVSRBackward(nn.Module):
    """A step of the backward chain; flow included, because nothing else takes it."""

    def __init__(self, model: BasicVSR, trunk: nn.Module) -> None:
        super().__init__()
        self.spynet, self.trunk = model.spynet, trunk

    def forward(self, frame: Tensor, neighbour: Tensor, features: Tensor) -> Tensor:
        """Frames (1, 3, H, W), the neighbour's features (1, C, H, W) -> the frame's."""
        near = flows.warp(features, self.spynet(frame, neighbour))
        done: Tensor = self.trunk(joined(frame, near))
        return done


class BasicVSRForward(BasicVSRBackward):
    """A step of the forward chain, and the result."""

    def __init__(self, model: BasicVSR, trunk: nn.Module) -> None:
        super().__init__(model, trunk)
        self.fusion, self.tail = model.fusion, model.tail

    def forward(  # type: ignore[override]
        self, frame: Tensor, neighbour: Tensor, features: Tensor, backward: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As above, with the features of the backward chain -> (1, 3, 4H, 4W), features."""
        found = super().forward(frame, neighbour, features)
        fused = F.leaky_relu(self.fusion(torch.cat([backward, found], 1)), 0.1)
        return self.tail(fused) + upsample_bilinear(frame, 4), found


def _basicvsr(model: BasicVSR, frame: str = "frame") -> Steps:
    def inputs(to: int, chain: str) -> dict[str, str]:
        return {
            "frame": f"{frame}[t]",
            "neighbour": f"{frame}{_at(to)}",
            "features": f"{chain}{_at(to)}",
        }

    calls = (
        Call(
            step="backward",
            inputs=inputs(1, "backward"),
            outputs={"result": "backward[t]"},
            order="backward",
        ),
        Call(
            step="forward",
            inputs={**inputs(-1, "forward"), "backward": "backward[t]"},
            outputs={"output": "output[t]", "result": "forward[t]"},
        ),
    )
    values = {name: Value(channels=model.config.channels) for name in ("backward", "forward")}
    functions = {
        "backward": BasicVSRBackward(model, model.backward_trunk),
        "forward": BasicVSRForward(model, model.forward_trunk),
    }
    return Steps(functions=functions, chain=Chain(calls=calls, values=values))


class Clean(nn.Module):
    """The cleaning of a frame by RealBasicVSR, one pass."""

    def __init__(self, model: RealBasicVSR) -> None:
        super().__init__()
        self.image_cleaning = model.image_cleaning

    def forward(self, frame: Tensor) -> Tensor:  # (1, 3, H, W) -> same
        return frame + self.image_cleaning(frame)


def _realbasicvsr(model: RealBasicVSR) -> Steps:
    inner = _basicvsr(model.basicvsr, "cleaned")
    clean = Call(step="clean", inputs={"frame": "frame[t]"}, outputs={"result": "cleaned[t]"})
    values = {**inner.chain.values, "cleaned": Value(channels=3)}
    return Steps(
        functions={"clean": Clean(model), **inner.functions},
        chain=Chain(calls=(clean, *inner.chain.calls), values=values),
    )


class CarriedStep(nn.Module):
    """A step of a model with a carried state, whose first part is the last frame."""

    def __init__(self, model: nn.Module, state: type) -> None:
        super().__init__()
        self.model, self.state = model, state

    def forward(self, frame: Tensor, last: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Frames (1, 3, H, W), the rest of the state, and the next frame if it is taken."""
        count = len(STATES[type(self.model)])
        rest, after = others[:count], others[count:]
        state = self.state((last, *rest)) if self.state is tuple else self.state(last, *rest)
        sr, (_, *found) = self.model.step(frame, state, *after)  # type: ignore[operator]
        return (sr, *found)


STATES: dict[type, tuple[str, ...]] = {
    FRVSR: ("result",),
    RRN: ("features", "result"),
    RSDN: ("features", "detail", "structure"),
    AnimeSR: ("features", "result"),
}


def _carried(model: FRVSR | RRN | RSDN | AnimeSR) -> Steps:
    c, stacked = Value(channels=model.config.channels), Value(channels=3 * model.spec.scale**2)
    values = {name: c if name == "features" else stacked for name in STATES[type(model)]}
    kind: type = tuple
    multiple = model.spec.multiple
    match model:
        case FRVSR():
            values = {"result": Value(channels=3, scale=model.spec.scale)}
        case RRN():
            kind = RRNState
        case RSDN():
            kind = RSDNState
        case AnimeSR():
            kind, multiple = AnimeSRState, ANIMESR_MULTIPLE
    inputs = {"frame": "frame[t]", "last": "frame[t-1]"}
    inputs |= {name: f"{name}[t-1]" for name in values}
    if isinstance(model, AnimeSR):
        inputs["after"] = "frame[t+1]"
    call = Call(
        step="step",
        inputs=inputs,
        outputs={"output": "output[t]", **{f"next_{n}": f"{n}[t]" for n in values}},
    )
    outside = "mirrored" if isinstance(model, RRN | RSDN) else "nearest"
    chain = Chain(calls=(call,), values=values, outside=outside)  # type: ignore[arg-type]
    return Steps(functions={"step": CarriedStep(model, kind)}, chain=chain, multiple=multiple)


def _at(distance: int) -> str:
    return f"[t{distance:+d}]" if distance else "[t]"


def _word(distance: int) -> str:
    """A distance in names of inputs, which hold no signs: -1 is `m1`, 1 is `p1`."""
    return f"{'m' if distance < 0 else 'p' if distance else ''}{abs(distance)}"
