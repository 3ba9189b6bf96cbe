"""Which models there are: a table of architectures and a table of named models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vsrkit.models import (
    basicvsr,
    bicubic,
    duf,
    edvr,
    frvsr,
    iconvsr,
    rbpn,
    rcan,
    rrn,
    rsdn,
    spmc,
    tdan,
    toflow,
    vespcn,
    vsrt,
    vsrt_small,
)
from vsrkit.models.zoo import vsrt_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How one paper's network is built, and recognised in a public weight file."""

    config: type[Any]  # a frozen dataclass
    build: Callable[[Any], nn.Module]  # config -> model with fresh weights
    # Public tensors -> config, or None if they are not of this architecture.
    detect: Callable[[Mapping[str, Tensor]], Any | None] = lambda tensors: None
    public_name: Callable[[str], str] = str  # our tensor name -> the name in public files
    translate: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = dict  # other public styles


ARCHITECTURES: dict[str, Architecture] = {
    "bicubic": Architecture(config=bicubic.BicubicConfig, build=bicubic.Bicubic),
    "vsrt": Architecture(
        config=vsrt.VSRTConfig,
        build=vsrt.VSRT,
        detect=vsrt_files.detect,
        public_name=vsrt_files.public_name,
        translate=vsrt_files.translate,
    ),
    "vsrt-small": Architecture(config=vsrt_small.SmallConfig, build=vsrt_small.VSRTSmall),
    "basicvsr": Architecture(
        config=basicvsr.BasicVSRConfig,
        build=basicvsr.BasicVSR,
        detect=basicvsr.detect,
        public_name=basicvsr.public_name,
        translate=basicvsr.translate,
    ),
    "iconvsr": Architecture(
        config=iconvsr.IconVSRConfig,
        build=iconvsr.IconVSR,
        detect=iconvsr.detect,
        public_name=iconvsr.public_name,
        translate=iconvsr.translate,
    ),
    "edvr": Architecture(
        config=edvr.EDVRConfig,
        build=edvr.EDVR,
        detect=edvr.detect,
        public_name=edvr.public_name,
        translate=edvr.translate,
    ),
    "tdan": Architecture(
        config=tdan.TDANConfig,
        build=tdan.TDAN,
        detect=tdan.detect,
        public_name=tdan.public_name,
        translate=tdan.translate,
    ),
    "rcan": Architecture(
        config=rcan.RCANConfig,
        build=rcan.RCAN,
        detect=rcan.detect,
        translate=rcan.translate,
    ),
    "toflow": Architecture(
        config=toflow.TOFlowConfig,
        build=toflow.TOFlow,
        detect=toflow.detect,
        public_name=toflow.public_name,
        translate=toflow.translate,
    ),
    "duf": Architecture(
        config=duf.DUFConfig,
        build=duf.DUF,
        detect=duf.detect,
        public_name=duf.public_name,
    ),
    "rbpn": Architecture(
        config=rbpn.RBPNConfig,
        build=rbpn.RBPN,
        detect=rbpn.detect,
        public_name=rbpn.public_name,
    ),
    "frvsr": Architecture(
        config=frvsr.FRVSRConfig,
        build=frvsr.FRVSR,
        detect=frvsr.detect,
    ),
    "rrn": Architecture(
        config=rrn.RRNConfig,
        build=rrn.RRN,
        detect=rrn.detect,
        public_name=rrn.public_name,
    ),
    "rsdn": Architecture(
        config=rsdn.RSDNConfig,
        build=rsdn.RSDN,
        detect=rsdn.detect,
        public_name=rsdn.public_name,
    ),
    "vespcn": Architecture(
        config=vespcn.VESPCNConfig,
        build=vespcn.VESPCN,
        detect=vespcn.detect,
    ),
    "spmc": Architecture(
        config=spmc.SPMCConfig,
        build=spmc.SPMC,
        detect=spmc.detect,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A named model: an architecture with its numbers, and where its weights come from."""

    architecture: str
    config: Any
    summary: str
    licence: str = "Apache-2.0"  # of the public weights, where there are any
    weights: str | None = None  # file name inside the package or the cache directory


MODELS: dict[str, Entry] = {
    "bicubic": Entry(
        architecture="bicubic",
        config=bicubic.BicubicConfig(),
        summary="Bicubic interpolation, the floor of every table",
    ),
    "vsrt-s": Entry(
        architecture="vsrt-small",
        config=vsrt_small.SMALL,
        summary="Our small VSR-Transformer, each frame once",
        weights="vsrt-s.safetensors",
    ),
    "vsrt-s-web": Entry(
        architecture="vsrt-small",
        config=vsrt_small.SMALL,
        summary="The same, trained on for compressed video; what `upscale` uses",
        weights="vsrt-s-web.safetensors",
    ),
    "vsrt-m": Entry(
        architecture="vsrt-small",
        config=vsrt_small.MEDIUM,
        summary="Our larger VSR-Transformer, for those who wait",
        weights="vsrt-m.safetensors",
    ),
    "vsrt-reds": Entry(
        architecture="vsrt",
        config=vsrt.REDS,
        summary="VSR-Transformer as released, 5 frames",
        weights="vsrt-reds.safetensors",
    ),
    "vsrt-vimeo": Entry(
        architecture="vsrt",
        config=vsrt.VIMEO,
        summary="VSR-Transformer as released, 7 frames",
        weights="vsrt-vimeo.safetensors",
    ),
    "vsrt-paper": Entry(
        architecture="vsrt",
        config=vsrt.PAPER,
        summary="VSR-Transformer as the paper's text has it, 5 frames",
        weights="vsrt-paper.safetensors",
    ),
    "basicvsr-reds4": Entry(
        architecture="basicvsr",
        config=basicvsr.BasicVSRConfig(),
        summary="BasicVSR, trained on REDS by its authors",
        weights="basicvsr-reds4.safetensors",
    ),
    "basicvsr-vimeo90k-bi": Entry(
        architecture="basicvsr",
        config=basicvsr.BasicVSRConfig(),
        summary="BasicVSR, trained on Vimeo-90K made small by bicubic",
        weights="basicvsr-vimeo90k-bi.safetensors",
    ),
    "basicvsr-vimeo90k-bd": Entry(
        architecture="basicvsr",
        config=basicvsr.BasicVSRConfig(),
        summary="BasicVSR, trained on Vimeo-90K made small by blur and subsampling",
        weights="basicvsr-vimeo90k-bd.safetensors",
    ),
    "iconvsr-reds": Entry(
        architecture="iconvsr",
        config=iconvsr.REDS,
        summary="IconVSR, key frames refilled from 5 frames",
        weights="iconvsr-reds.safetensors",
    ),
    "iconvsr-vimeo90k": Entry(
        architecture="iconvsr",
        config=iconvsr.VIMEO,
        summary="IconVSR, key frames refilled from 7 frames",
        weights="iconvsr-vimeo90k.safetensors",
    ),
    "edvr-m": Entry(
        architecture="edvr",
        config=edvr.MEDIUM,
        summary="EDVR-M, 5 frames",
        weights="edvr-m.safetensors",
    ),
    "edvr-l": Entry(
        architecture="edvr",
        config=edvr.LARGE,
        summary="EDVR-L, 5 frames",
        weights="edvr-l.safetensors",
    ),
    "edvr-l-vimeo90k": Entry(
        architecture="edvr",
        config=edvr.LARGE_VIMEO,
        summary="EDVR-L, 7 frames",
        weights="edvr-l-vimeo90k.safetensors",
    ),
    "tdan": Entry(
        architecture="tdan",
        config=tdan.TDANConfig(),
        summary="TDAN, 5 frames",
        licence="MIT",
        weights="tdan.safetensors",
    ),
    "rcan": Entry(
        architecture="rcan",
        config=rcan.RCANConfig(),
        summary="RCAN, frame by frame",
        licence="not stated",
        weights="rcan.safetensors",
    ),
    "toflow": Entry(
        architecture="toflow",
        config=toflow.TOFlowConfig(),
        summary="TOFlow, 7 frames enlarged by bicubic",
        licence="MIT",
        weights="toflow.safetensors",
    ),
    "duf-16l": Entry(
        architecture="duf",
        config=duf.L16,
        summary="DUF-16L, 7 frames",
        licence="not stated",
        weights="duf-16l.safetensors",
    ),
    "duf-28l": Entry(
        architecture="duf",
        config=duf.L28,
        summary="DUF-28L, 7 frames",
        licence="not stated",
        weights="duf-28l.safetensors",
    ),
    "duf-52l": Entry(
        architecture="duf",
        config=duf.L52,
        summary="DUF-52L, 7 frames",
        licence="not stated",
        weights="duf-52l.safetensors",
    ),
    "rbpn": Entry(
        architecture="rbpn",
        config=rbpn.RBPNConfig(),
        summary="RBPN, 7 frames and a flow without weights",
        licence="MIT",
        weights="rbpn.safetensors",
    ),
    "frvsr": Entry(
        architecture="frvsr",
        config=frvsr.FRVSRConfig(),
        summary="FRVSR 10-128, forward only",
        weights="frvsr.safetensors",
    ),
    "rrn-5l": Entry(
        architecture="rrn",
        config=rrn.L5,
        summary="RRN-5L, forward only",
        licence="not stated",
        weights="rrn-5l.safetensors",
    ),
    "rrn-10l": Entry(
        architecture="rrn",
        config=rrn.L10,
        summary="RRN-10L, forward only",
        licence="not stated",
        weights="rrn-10l.safetensors",
    ),
    "rsdn": Entry(
        architecture="rsdn",
        config=rsdn.RSDNConfig(),
        summary="RSDN9-128, forward only",
        licence="not stated",
        weights="rsdn.safetensors",
    ),
    "vespcn": Entry(
        architecture="vespcn",
        config=vespcn.VESPCNConfig(),
        summary="VESPCN after the paper, 3 frames, brightness",
        weights="vespcn.safetensors",
    ),
    "spmc": Entry(
        architecture="spmc",
        config=spmc.SPMCConfig(),
        summary="SPMC after the paper, 3 frames, brightness",
        weights="spmc.safetensors",
    ),
}
