"""Small valid files to damage: every container and codec that this build of FFmpeg writes."""

import json
import random as random_module
from contextlib import suppress
from pathlib import Path

import av
import torch
from av.codec.codec import UnknownCodecError
from safetensors.torch import save_file
from tests.clips import noise_picture, write_clip, write_rich_clip

from vsrkit.models.rrn import RRN, RRNConfig
from vsrkit.models.vsrt import VSRT, VSRTConfig
from vsrkit.models.zoo import save_model
from vsrkit.video.images import write_image

X265 = {"x265-params": "log-level=none:keyint=3"}
FORMS = {  # name of the file: codec, pixel format, FFmpeg's format, options
    "h264.mkv": ("libx264", "yuv420p", None, {}),
    "h264-deep.mkv": ("libx264", "yuv422p10le", None, {}),
    "hevc.mkv": ("libx265", "yuv420p", None, X265),
    "av1.mkv": ("libsvtav1", "yuv420p10le", None, {"preset": "12"}),
    "ffv1.mkv": ("ffv1", "yuv444p", None, {}),
    "ffv1-alpha.mkv": ("ffv1", "yuva420p", None, {}),
    "prores.mkv": ("prores_ks", "yuv422p10le", None, {}),
    "mjpeg.mkv": ("mjpeg", "yuvj420p", None, {}),
    "raw.mkv": ("rawvideo", "yuv420p", None, {}),
    "mpeg2.mkv": ("mpeg2video", "yuv420p", None, {}),
    "vp8.webm": ("libvpx", "yuv420p", None, {"b": "100k"}),
    "vp9.webm": ("libvpx-vp9", "yuv420p", None, {"lossless": "1"}),
    "h264.mp4": ("libx264", "yuv420p", None, {"bf": "2"}),
    "hevc.mp4": ("libx265", "yuv420p", None, X265),
    "av1.mp4": ("libsvtav1", "yuv420p", None, {"preset": "12"}),
    "mpeg4.mp4": ("mpeg4", "yuv420p", None, {}),
    "vp9.mp4": ("libvpx-vp9", "yuv420p", None, {}),
    "prores.mov": ("prores_ks", "yuva444p10le", None, {}),
    "png.mov": ("png", "rgb24", None, {}),
    "qtrle.mov": ("qtrle", "rgb24", None, {}),
    "dnxhd.mov": ("dnxhd", "yuv422p", None, {"profile": "dnxhr_sq"}),
    "h263.3gp": ("h263", "yuv420p", None, {}),
    "mpeg4.avi": ("mpeg4", "yuv420p", None, {}),
    "mjpeg.avi": ("mjpeg", "yuvj422p", None, {}),
    "raw.avi": ("rawvideo", "bgr24", None, {}),
    "huffyuv.avi": ("huffyuv", "yuv422p", None, {}),
    "utvideo.avi": ("utvideo", "yuv420p", None, {}),
    "msmpeg4.avi": ("msmpeg4", "yuv420p", None, {}),
    "mpeg2.mpg": ("mpeg2video", "yuv420p", None, {}),
    "mpeg1.mpg": ("mpeg1video", "yuv420p", None, {}),
    "mpeg2.vob": ("mpeg2video", "yuv420p", None, {}),
    "h264.ts": ("libx264", "yuv420p", None, {}),
    "mpeg2.ts": ("mpeg2video", "yuv420p", None, {}),
    "hevc.m2ts": ("libx265", "yuv420p", "mpegts", X265),
    "flv1.flv": ("flv", "yuv420p", None, {}),
    "h264.flv": ("libx264", "yuv420p", None, {}),
    "wmv2.wmv": ("wmv2", "yuv420p", None, {}),
    "theora.ogv": ("libtheora", "yuv420p", None, {}),
    "vp8.ogv": ("libvpx", "yuv420p", None, {}),
    "raw.y4m": ("rawvideo", "yuv420p", None, {}),
    "mpeg4.nut": ("mpeg4", "yuv420p", "nut", {}),
    "vp9.ivf": ("libvpx-vp9", "yuv420p", "ivf", {}),
    "raw.h264": ("libx264", "yuv420p", "h264", {}),
    "raw.hevc": ("libx265", "yuv420p", "hevc", X265),
    "picture.gif": ("gif", "rgb8", "gif", {}),
    "picture.apng": ("apng", "rgb24", "apng", {}),
    "moving.webp": ("libwebp_anim", "yuv420p", "webp", {}),
}
SIZES = {"h263.3gp": (128, 96), "dnxhd.mov": (256, 120)}
IMAGES = (".png", ".jpg", ".bmp", ".webp", ".tiff")
TINY = VSRTConfig(
    frames=2, depth=2, channels=6, size=16, extract_blocks=1, tower_blocks=1, reconstruct_blocks=1
)


def write_videos(folder):
    """One small file of each form, files with sound and subtitles, and fragmented ones."""
    made = [folder / name for name in FORMS if _write_form(folder, name)]
    made += [
        write_rich_clip(folder / "rich.mkv", frames=4),
        write_rich_clip(folder / "rich-opus.mkv", frames=4, audio="libopus"),
        write_rich_clip(folder / "rich.mp4", frames=4, subtitle="mov_text", attachment=False),
        write_rich_clip(folder / "rich.mov", frames=4, subtitle="mov_text", attachment=False),
    ]
    for name, flags in (
        ("fragments.mp4", "frag_keyframe+empty_moov"),
        ("faststart.mp4", "faststart"),
        ("dash.mp4", "dash+frag_every_frame"),
    ):
        made.append(_remuxed(folder / "h264.mp4", folder / name, {"movflags": flags}))
    made.append(
        write_clip(folder / "times.mkv", codec="ffv1", width=16, height=16, times=[0, 40, 41, 300])
    )
    made.append(
        write_clip(
            folder / "turned.mp4", width=32, height=16, frames=4, rotation=90, aspect="4/3",
            options={"flags": "+ildct+ilme", "x264-params": "tff=1"},
        )
    )  # fmt: skip
    return made


def _write_form(folder, name):
    """Write one form; False if this build of FFmpeg lacks the encoder."""
    codec, pix_fmt, form, options = FORMS[name]
    side = 64 if codec == "libsvtav1" else 16
    width, height = SIZES.get(name, (side, side))
    with suppress(UnknownCodecError), av.open(str(folder / name), "w", format=form) as file:
        stream = file.add_stream(codec, rate=25, options={"g": "3"} | options)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        for number in range(4):
            picture = noise_picture(number, width, height, smooth=number % 2 == 0)
            if pix_fmt != "yuv420p":
                picture = picture.reformat(format=pix_fmt)
            picture.pts = number
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
        return True
    return False


def _remuxed(source, target, options):
    with av.open(str(source)) as old, av.open(str(target), "w", options=options) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    return target


def write_images(folder):
    """One small image of each format, with and without alpha, of 8 and 16 bits."""
    frame = torch.rand(3, 9, 12, generator=torch.Generator().manual_seed(0))
    made = [folder / "deep.png"]
    write_image(made[0], frame, bits=16)
    write_image(folder / "plain.png", frame)
    with av.open(str(folder / "plain.png")) as file:
        (picture,) = file.decode(video=0)
    for name, codec, pix_fmt in (
        ("alpha.png", "png", "rgba"),
        ("palette.png", "png", "pal8"),
        ("grey.png", "png", "gray"),
        ("a.jpg", "mjpeg", "yuvj420p"),
        ("a.bmp", "bmp", "bgr24"),
        ("a.webp", "libwebp", "yuv420p"),
        ("a.tiff", "tiff", "rgb24"),
    ):
        with suppress(UnknownCodecError, ValueError, av.FFmpegError):
            context = av.CodecContext.create(codec, "w")
            context.width, context.height, context.pix_fmt = 12, 9, pix_fmt
            context.time_base = 1
            shown = picture.reformat(format=pix_fmt)
            packets = [*context.encode(shown), *context.encode(None)]
            (folder / name).write_bytes(b"".join(map(bytes, packets)))
            made.append(folder / name)
    return [*made, folder / "plain.png"]


def write_weights(folder):
    """Weight files of very small models: vsrkit's, safetensors of others, zips and old pickles."""
    torch.manual_seed(0)
    recurrent = RRN(RRNConfig(channels=8, blocks=1))
    save_model(folder / "vsrt.safetensors", VSRT(TINY), half=True)
    save_model(folder / "carried.safetensors", recurrent)
    state = {name: value.clone() for name, value in recurrent.state_dict().items()}
    save_file(state, folder / "plain.safetensors")
    torch.save({"params": state}, folder / "zip.pth")
    torch.save(state, folder / "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, folder / "wrapped.pt")
    (folder / "bomb.pth").write_bytes(b"cposix\nsystem\n(S'touch /tmp/vsrkit-fuzz-bomb'\ntR.")
    return sorted(folder.iterdir())


RECIPES = {
    "model.toml": """run_dir = "run"
model = "vsrt-xs"
data = [{path = "videos", weight = 2.0}, {path = "more", degradation = "crf15-35"}]
validation = ["a"]
steps = 6
batch_size = 2
frames = 3
crop = 16
optimizer = "muon"
learning_rate = 1e-3
losses = {charbonnier = 1.0}
""",
    "flow.toml": 'kind = "flow"\nrun_dir = "run"\nstills = "folder"\nsteps = 3\n',
    "config.json": json.dumps({"run_dir": "run", "model": "vsrt-xs", "steps": 6, "validation": []}),
    "recipe.py": "from vsrkit.train.config import TrainConfig\n\n\ndef config():\n"
    '    return TrainConfig(run_dir="run", model="vsrt-xs", data=())\n',
}


def write_recipes(folder):
    """A recipe in each form."""
    for name, text in RECIPES.items():
        (folder / name).write_text(text)
    return [folder / name for name in RECIPES]


class Corpus:
    """All valid files, written once into a folder."""

    def __init__(self, folder: Path) -> None:
        for name in ("videos", "images", "weights", "recipes"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.videos = write_videos(folder / "videos")
        self.images = write_images(folder / "images")
        self.weights = write_weights(folder / "weights")
        self.recipes = write_recipes(folder / "recipes")
        self.folder = folder
        # A film of three shots that plays long enough for several small parts.
        pictures = [noise_picture(n // 9 * 1000 + n % 9, 16, 16, smooth=True) for n in range(27)]
        self.film = write_clip(
            folder / "film.mkv", width=16, height=16, pictures=pictures,
            times=[40 * n + n % 2 for n in range(27)], time_base="1/1000",
        )  # fmt: skip


def seeded(*words):
    """A generator of random numbers that depends on the words only."""
    return random_module.Random(":".join(map(str, words)))
