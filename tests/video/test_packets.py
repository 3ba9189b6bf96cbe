"""Files of encoded packets: what was written comes back, and damage is noticed."""

import tracemalloc

import pytest

from vsrkit.errors import VideoError
from vsrkit.video.encode import EncodedPacket
from vsrkit.video.files import read_packets, write_packets

PACKETS = [EncodedPacket(0, True, b"first"), EncodedPacket(2, False, b"\0" * 3_000_000)]


def test_packets_come_back(tmp_path):
    write_packets(tmp_path / "part", PACKETS)
    assert list(read_packets(tmp_path / "part")) == PACKETS


@pytest.mark.parametrize("place", [0, 20, 40, 2_000_000, -20, -1])
def test_a_changed_byte_is_noticed(tmp_path, place):
    path = tmp_path / "part"
    write_packets(path, PACKETS)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(VideoError, match="damaged"):
        list(read_packets(path))


@pytest.mark.parametrize("size", [0, 3, 17, 30, 2_000_000])
def test_a_short_file_is_noticed(tmp_path, size):
    path = tmp_path / "part"
    write_packets(path, PACKETS)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(VideoError, match="damaged"):
        list(read_packets(path))


def test_only_one_packet_is_in_memory(tmp_path):
    path = tmp_path / "part"
    write_packets(path, (EncodedPacket(n, True, bytes(1_000_000)) for n in range(40)))
    tracemalloc.start()
    assert sum(len(packet.data) for packet in read_packets(path)) == 40_000_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
