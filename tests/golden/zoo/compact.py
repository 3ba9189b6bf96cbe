"""Make the goldens from the full reference tensors: python -m tests.golden.zoo.compact FOLDER.

Weights follow from names (recipe.py) and are left out; large outputs are sampled.
"""

import json
import re
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.golden.zoo.recipe import FOLDER, names_digest, sampled
from torch import Tensor

NETWORKS = (
    "basicvsr_small",
    "basicvsr_small_b2t2",
    "iconvsr_small_p2",
    "edvr_small",
    "edvr_small_predeblur",
    "edvr_m_full",
    "rcan_small",
    "toflow_ref3",
    "duf_small_eps1e-3",
    "duf_small_eps1e-5",
    "duf_16l_full",
    "rbpn_small",
    "frvsr_bd",
    "frvsr_bi",
    "frvsr_10_128",
    "tdan_full",
    "rrn_small",
    "rrn_10l_full",
    "rsdn9_128_full",
    "vespcn_y",
    "vespcn_rgb",
    "spmc_small",
    "spmc_full",
    "basicvsrpp_small",
    "basicvsrpp_full",
    "realbasicvsr_small",
    "realbasicvsr_small_refine",
    "realbasicvsr_full",
    "animesr_small",
    "psrt_small",
    "iart_small",
    "rvrt_small",
)
TRAINED = ("animesr_v1_trained_io", "animesr_v2_trained_io")  # with published weights
INPUTS = ("input", "input_u8", "neighbors", "flows")
SAMPLED = ("output", "output_sub2", "mid.aligned_lrs", "mid.out_d", "mid.out_s", "mid.cleaned")
DEFORM_CASES = ("groups2_dg4", "anisotropic", "nopad", "integer", "far", "k1", "v1_nomask")


def main(full: Path) -> None:
    goldens: dict[str, dict[str, Tensor]] = {}
    gains, own_flow = {}, []
    for name in (*NETWORKS, *TRAINED):
        tensors, about = load_file(full / f"{name}.safetensors"), metadata(full, name)
        if name in NETWORKS:
            gains[name] = json.loads(about["gains"])
        if "spynet" in json.loads(about["config"]):
            own_flow.append(name)
        goldens[name] = {key: tensors[key] for key in INPUTS if key in tensors}
        goldens[name] |= {key: sampled(tensors[key]) for key in SAMPLED if key in tensors}
    for name in ("spmc_layer", "frvsr_ops", "dcn_pack", "psrt_iart_ops", "rvrt_deform_attn"):
        tensors = load_file(full / f"{name}.safetensors")
        goldens[name] = {k: v for k, v in tensors.items() if not k.startswith("mid.")}
    tensors, cases = load_file(full / "dcn_v2.safetensors"), metadata(full, "dcn_v2")["cases"]
    for case in DEFORM_CASES:
        goldens[f"dcn_{case}"] = {
            k.removeprefix(f"{case}."): v for k, v in tensors.items() if k.startswith(f"{case}.")
        }
    content = {
        "gains": gains,
        "own_flow": own_flow,
        "deform_cases": {case: json.loads(cases)[case] for case in DEFORM_CASES},
        "networks": {
            path.stem.removeprefix("manifest_"): _network(json.loads(path.read_text()))
            for path in sorted(full.glob("manifest_*.json"))
            if path.stem not in ("manifest_spynet", "manifest_rcan_authors")
        },
        "mmedit_names": {
            path.stem.removeprefix("keymap_mmedit_"): _names(json.loads(path.read_text())["map"])
            for path in sorted(full.glob("keymap_mmedit_*.json"))
        },
        "rcan_authors_names": [
            name
            for name in json.loads((full / "manifest_rcan_authors.json").read_text())["state_dict"]
            if not re.search(r"^body\.[1-9]\.body", name)
        ],
        "gradients": {
            name: value
            for file in ("small_grads.json", "small_grads_newer.json")
            for name, value in json.loads((full / file).read_text()).items()
        },
    }
    for name, tensors in goldens.items():
        save_file({k: v.contiguous() for k, v in tensors.items()}, FOLDER / f"{name}.safetensors")
    (FOLDER / "zoo.json").write_text(json.dumps(content, separators=(",", ":")))


def metadata(full: Path, name: str) -> dict[str, str]:
    with safe_open(full / f"{name}.safetensors", "pt") as file:
        return file.metadata()


def _network(manifest: dict) -> dict:
    return {
        "parameters": manifest["total_params"],
        "names": names_digest(manifest["state_dict"]),
    }


def _names(keymap: dict) -> dict[str, str]:
    """Foreign name -> public name; of long rows of blocks only the first ten."""
    return {
        key: value[0] for key, value in keymap.items() if not re.search(r"\.[1-9]\d\.conv", key)
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
