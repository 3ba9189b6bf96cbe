"""Which streams of a file are encrypted, by what the container says."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import av
from av.container import InputContainer

from vsrkit.video.boxes import encrypted_tracks, is_mp4

if TYPE_CHECKING:
    Packet: TypeAlias = av.Packet[Any]
else:
    Packet = av.Packet  # generic for type checkers only

TS_PACKET, SCRAMBLING_CHECKED = 188, 1 << 20  # bytes of a transport stream


def is_encrypted(packet: Packet) -> bool:
    """Whether the content of a packet is encrypted."""
    return packet.has_sidedata("encryption_info") or "enc_key_id" in packet.stream.metadata


def encrypted_streams(container: InputContainer) -> set[int]:
    """Indices of the encrypted streams of a file."""
    of_matroska = {s.index for s in container.streams if "enc_key_id" in s.metadata}
    if container.format.name == "mpegts":
        scrambled = scrambled_programs(Path(container.name))
        return {stream.index for stream in container.streams if stream.id in scrambled}
    if container.format.name == "asf" and "ASF_Protection_Type" in container.metadata:
        return {stream.index for stream in container.streams}
    return of_matroska | encrypted_streams_of_mp4(Path(container.name))


def scrambled_programs(path: Path) -> set[int]:
    """Numbers (PID) of the streams at the start of a transport stream that are scrambled."""
    try:
        with path.open("rb") as file:
            data = file.read(SCRAMBLING_CHECKED)
    except OSError:
        return set()
    start = next((n for n in range(TS_PACKET) if data[n::TS_PACKET][:8] == b"\x47" * 8), len(data))
    heads = [data[place : place + 4] for place in range(start, len(data) - 3, TS_PACKET)]
    clear = {int.from_bytes(head[1:3]) & 0x1FFF for head in heads if not head[3] & 0xC0}
    return {int.from_bytes(head[1:3]) & 0x1FFF for head in heads if head[3] & 0xC0} - clear


def encrypted_streams_of_mp4(path: Path) -> set[int]:
    """Indices of the encrypted streams of an mp4; empty for all other files."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
        return encrypted_tracks(path) if is_mp4(head) else set()
    except OSError:
        return set()


def encryption_of(path: Path) -> str:
    """The message about an encrypted file."""
    return f"{path} is encrypted, its frames need a key; decrypt it first"
