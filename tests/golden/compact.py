"""Make tests/golden/vsrt.safetensors from the full reference tensors: python compact.py FOLDER.

Inputs and weights that follow from a seed or a name are left out, large outputs are sampled.
"""

import json
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file


def main(full: Path) -> None:
    attention = load_file(full / "attention.safetensors")
    feed_forward = load_file(full / "feed_forward.safetensors")
    spynet = load_file(full / "spynet.safetensors")
    positions = load_file(full / "pos_enc.safetensors")
    whole = load_file(full / "official_small.safetensors")
    small = {f"warp.{k}": v for k, v in load_file(full / "flow_warp.safetensors").items()}
    small |= {f"position.{k}": v[..., ::2] for k, v in positions.items() if "C64" not in k}
    small |= {f"attention.{k}": v for k, v in attention.items() if k.startswith("w.")}
    for heads in (1, 2):
        small[f"attention.h{heads}.weights"] = attention[f"h{heads}.attn"][:, ::4]
        for part in ("core_out", "sublayer_out"):
            small[f"attention.h{heads}.{part}"] = attention[f"h{heads}.{part}"][..., ::4, ::4]
    for name in ("flows_backward", "flows_forward", "lrs"):
        small[f"feed_forward.{name}"] = feed_forward[name]
    for name in ("core_out", "sublayer_out"):
        small[f"feed_forward.{name}"] = feed_forward[name][..., ::2, ::2]
    for size in ("1x33x40", "1x70x101"):
        small |= {f"spynet.{k}": v for k, v in spynet.items() if k.startswith(size)}
    small |= {f"spynet.{size}.flow": spynet[f"{size}.flow"] for size in ("2x64x64", "1x96x64")}
    small["whole.output"] = whole["io.output"][..., ::4, ::4]
    small["whole.detail"] = whole["io.output"][..., 100:140, 100:140]
    here = Path(__file__).parent
    save_file({k: v.contiguous() for k, v in small.items()}, here / "vsrt.safetensors")
    grads = json.loads((full / "official_small_grads.json").read_text())
    (here / "vsrt_grads.json").write_text(json.dumps(grads, separators=(",", ":")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
