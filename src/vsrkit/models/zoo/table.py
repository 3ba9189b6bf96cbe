"""The table of architectures and the table of named models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vsrkit.models import (
    animesr,
    basicvsr,
    basicvsr_plusplus,
    bicubic,
    duf,
    edvr,
    frvsr,
    iart,
    iconvsr,
    psrt,
    rbpn,
    rcan,
    realbasicvsr,
    rrn,
    rsdn,
    rvrt,
    spmc,
    tdan,
    toflow,
    vespcn,
    vsrt,
    vsrt_small,
    vsrt_stream,
)
from vsrkit.models.zoo import rvrt_files, vsrt_files


@dataclass(frozen=True, slots=True)
class Architecture:
    """How the network of a paper is built, and recognised in a public weight file.

    config: a frozen dataclass
    build: config -> model with initial weights
    detect: public tensors -> config, or None if they belong to another architecture
    public_name: vsrkit's tensor name -> the name in public files
    translate: tensors in other public naming styles -> in the style of `public_name`
    """

    config: type[Any]
    build: Callable[[Any], nn.Module]
    detect: Callable[[Mapping[str, Tensor]], Any | None] = lambda tensors: None
    public_name: Callable[[str], str] = str
    translate: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = dict


ARCHITECTURES: dict[str, Architecture] = {
    "bicubic": Architecture(bicubic.BicubicConfig, bicubic.Bicubic),
    "vsrt": Architecture(
        vsrt.VSRTConfig, vsrt.VSRT, vsrt_files.detect, vsrt_files.public_name, vsrt_files.translate
    ),
    "vsrt-small": Architecture(vsrt_small.SmallConfig, vsrt_small.VSRTSmall),
    "vsrt-stream": Architecture(vsrt_stream.StreamConfig, vsrt_stream.VSRTStream),
    "basicvsr": Architecture(
        basicvsr.BasicVSRConfig,
        basicvsr.BasicVSR,
        basicvsr.detect,
        basicvsr.public_name,
        basicvsr.translate,
    ),
    "basicvsrpp": Architecture(
        basicvsr_plusplus.BasicVSRPlusPlusConfig,
        basicvsr_plusplus.BasicVSRPlusPlus,
        basicvsr_plusplus.detect,
        basicvsr_plusplus.public_name,
        basicvsr_plusplus.translate,
    ),
    "realbasicvsr": Architecture(
        realbasicvsr.RealBasicVSRConfig,
        realbasicvsr.RealBasicVSR,
        realbasicvsr.detect,
        realbasicvsr.public_name,
        realbasicvsr.translate,
    ),
    "iconvsr": Architecture(
        iconvsr.IconVSRConfig,
        iconvsr.IconVSR,
        iconvsr.detect,
        basicvsr.public_name,
        iconvsr.translate,
    ),
    "psrt": Architecture(psrt.PSRTConfig, psrt.PSRT, psrt.detect, psrt.public_name, psrt.translate),
    "iart": Architecture(iart.IARTConfig, iart.IART, iart.detect, iart.public_name, iart.translate),
    "rvrt": Architecture(
        rvrt.RVRTConfig, rvrt.RVRT, rvrt_files.detect, rvrt_files.public_name, rvrt_files.translate
    ),
    "edvr": Architecture(edvr.EDVRConfig, edvr.EDVR, edvr.detect, edvr.public_name, edvr.translate),
    "tdan": Architecture(tdan.TDANConfig, tdan.TDAN, tdan.detect, tdan.public_name, tdan.translate),
    "rcan": Architecture(rcan.RCANConfig, rcan.RCAN, rcan.detect, translate=rcan.translate),
    "toflow": Architecture(
        toflow.TOFlowConfig, toflow.TOFlow, toflow.detect, toflow.public_name, toflow.translate
    ),
    "duf": Architecture(duf.DUFConfig, duf.DUF, duf.detect, duf.public_name),
    "rbpn": Architecture(rbpn.RBPNConfig, rbpn.RBPN, rbpn.detect, rbpn.public_name),
    "frvsr": Architecture(frvsr.FRVSRConfig, frvsr.FRVSR, frvsr.detect),
    "rrn": Architecture(rrn.RRNConfig, rrn.RRN, rrn.detect, rrn.public_name),
    "rsdn": Architecture(rsdn.RSDNConfig, rsdn.RSDN, rsdn.detect, rsdn.public_name),
    "animesr": Architecture(
        animesr.AnimeSRConfig, animesr.AnimeSR, animesr.detect, animesr.public_name
    ),
    "vespcn": Architecture(vespcn.VESPCNConfig, vespcn.VESPCN, vespcn.detect),
    "spmc": Architecture(spmc.SPMCConfig, spmc.SPMC, spmc.detect),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A named model.

    architecture: a key of `ARCHITECTURES`
    config: its configuration
    summary: one line for the list of models
    licence: of the public weights
    weights: whether it has a weight file, NAME.safetensors in the package or the cache directory
    sharper: the model of the same configuration that was trained from this one to look sharper;
        weights between both are models, too
    """

    architecture: str
    config: Any
    summary: str
    licence: str = "Apache-2.0"
    weights: bool = True
    sharper: str = ""


MODELS: dict[str, Entry] = {
    "bicubic": Entry(
        "bicubic",
        bicubic.BicubicConfig(),
        "Bicubic interpolation, the baseline",
        weights=False,
    ),
    "vsrt-s": Entry("vsrt-small", vsrt_small.SMALL, "Small VSR-Transformer, each frame once"),
    "vsrt-s-web": Entry(
        "vsrt-small",
        vsrt_small.SMALL,
        "vsrt-s for compressed video; the default of `upscale`",
        sharper="vsrt-s-vivid",
    ),
    "vsrt-s-vivid": Entry(
        "vsrt-small", vsrt_small.SMALL, "vsrt-s-web trained to look sharper (`--sharpness`)"
    ),
    "vsrt-m": Entry("vsrt-small", vsrt_small.MEDIUM, "Larger VSR-Transformer, slower and better"),
    "vsrt-s-x2": Entry(
        "vsrt-small", vsrt_small.SMALL_X2, "vsrt-s for scale 2, clean and compressed"
    ),
    "vsrt-xs": Entry("vsrt-stream", vsrt_stream.StreamConfig(), "Forward only, for streams"),
    "vsrt-reds": Entry("vsrt", vsrt.REDS, "VSR-Transformer as released, 5 frames"),
    "vsrt-vimeo": Entry("vsrt", vsrt.VIMEO, "VSR-Transformer as released, 7 frames"),
    "vsrt-paper": Entry("vsrt", vsrt.PAPER, "VSR-Transformer as in the paper's text, 5 frames"),
    "vsrt-paper-vimeo": Entry(
        "vsrt", vsrt.PAPER_VIMEO, "VSR-Transformer as in the paper's text, 7 frames"
    ),
    "basicvsr-reds4": Entry(
        "basicvsr", basicvsr.BasicVSRConfig(), "BasicVSR, trained on REDS by its authors"
    ),
    "basicvsr-vimeo90k-bi": Entry(
        "basicvsr",
        basicvsr.BasicVSRConfig(),
        "BasicVSR, trained on Vimeo-90K, bicubic",
    ),
    "basicvsr-vimeo90k-bd": Entry(
        "basicvsr",
        basicvsr.BasicVSRConfig(),
        "BasicVSR, trained on Vimeo-90K, blur and subsampling",
    ),
    "basicvsrpp-reds4": Entry(
        "basicvsrpp",
        basicvsr_plusplus.BasicVSRPlusPlusConfig(),
        "BasicVSR++, trained on REDS by its authors",
    ),
    "basicvsrpp-vimeo90k-bi": Entry(
        "basicvsrpp",
        basicvsr_plusplus.BasicVSRPlusPlusConfig(),
        "BasicVSR++, trained on Vimeo-90K, bicubic",
    ),
    "basicvsrpp-vimeo90k-bd": Entry(
        "basicvsrpp",
        basicvsr_plusplus.BasicVSRPlusPlusConfig(),
        "BasicVSR++, trained on Vimeo-90K, blur and subsampling",
    ),
    "basicvsrpp-ntire": Entry(
        "basicvsrpp", basicvsr_plusplus.NTIRE, "Large BasicVSR++ of the NTIRE 2021 challenge"
    ),
    "basicvsrpp-ntire-decompress": Entry(
        "basicvsrpp",
        basicvsr_plusplus.NTIRE_DECOMPRESS,
        "Large BasicVSR++ that restores compressed video at its own size",
    ),
    "realbasicvsr": Entry(
        "realbasicvsr",
        realbasicvsr.RealBasicVSRConfig(),
        "RealBasicVSR for damaged footage: cleaning, then BasicVSR",
    ),
    "iconvsr-reds": Entry("iconvsr", iconvsr.REDS, "IconVSR, key frames refilled from 5 frames"),
    "iconvsr-vimeo90k": Entry(
        "iconvsr", iconvsr.VIMEO, "IconVSR, key frames refilled from 7 frames"
    ),
    "psrt-reds4": Entry(
        "psrt", psrt.PSRTConfig(), "PSRT-recurrent, trained on REDS by its authors", "not stated"
    ),
    "psrt-vimeo90k-bi": Entry(
        "psrt", psrt.PSRTConfig(), "PSRT-recurrent, trained on Vimeo-90K, bicubic", "not stated"
    ),
    "iart-reds4": Entry("iart", iart.IARTConfig(), "IART, trained on REDS by its authors", "MIT"),
    "iart-vimeo90k-bi": Entry(
        "iart", iart.IARTConfig(), "IART, trained on Vimeo-90K, bicubic", "MIT"
    ),
    "iart-vimeo90k-bd": Entry(
        "iart", iart.IARTConfig(), "IART, trained on Vimeo-90K, blur and subsampling", "MIT"
    ),
    "rvrt-reds4": Entry(
        "rvrt", rvrt.RVRTConfig(), "RVRT, trained on REDS by its authors", "CC-BY-NC-4.0"
    ),
    "rvrt-vimeo90k-bi": Entry(
        "rvrt", rvrt.RVRTConfig(), "RVRT, trained on Vimeo-90K, bicubic", "CC-BY-NC-4.0"
    ),
    "rvrt-vimeo90k-bd": Entry(
        "rvrt",
        rvrt.RVRTConfig(),
        "RVRT, trained on Vimeo-90K, blur and subsampling",
        "CC-BY-NC-4.0",
    ),
    "edvr-m": Entry("edvr", edvr.MEDIUM, "EDVR-M, 5 frames"),
    "edvr-l": Entry("edvr", edvr.LARGE, "EDVR-L, 5 frames"),
    "edvr-l-vimeo90k": Entry("edvr", edvr.LARGE_VIMEO, "EDVR-L, 7 frames"),
    "tdan": Entry("tdan", tdan.TDANConfig(), "TDAN, 5 frames", "MIT"),
    "rcan": Entry("rcan", rcan.RCANConfig(), "RCAN, frame by frame", "not stated"),
    "toflow": Entry("toflow", toflow.TOFlowConfig(), "TOFlow, 7 frames enlarged by bicubic", "MIT"),
    "duf-16l": Entry("duf", duf.L16, "DUF-16L, 7 frames", "not stated"),
    "duf-28l": Entry("duf", duf.L28, "DUF-28L, 7 frames", "not stated"),
    "duf-52l": Entry("duf", duf.L52, "DUF-52L, 7 frames", "not stated"),
    "rbpn": Entry("rbpn", rbpn.RBPNConfig(), "RBPN, 7 frames and a flow without weights", "MIT"),
    "frvsr": Entry("frvsr", frvsr.FRVSRConfig(), "FRVSR 10-128, forward only"),
    "rrn-5l": Entry("rrn", rrn.L5, "RRN-5L, forward only", "not stated"),
    "rrn-10l": Entry("rrn", rrn.L10, "RRN-10L, forward only", "not stated"),
    "rsdn": Entry("rsdn", rsdn.RSDNConfig(), "RSDN9-128, forward only", "not stated"),
    "animesr-v1": Entry(
        "animesr", animesr.AnimeSRConfig(), "AnimeSR for drawn video, older weights"
    ),
    "animesr-v2": Entry("animesr", animesr.AnimeSRConfig(), "AnimeSR for drawn video, recommended"),
    "vespcn": Entry("vespcn", vespcn.VESPCNConfig(), "VESPCN from the paper, 3 frames, luma"),
    "spmc": Entry("spmc", spmc.SPMCConfig(), "SPMC from the paper, 3 frames, luma"),
}
