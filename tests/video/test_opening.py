"""Files of strangers: what they may make FFmpeg open, and how much work they may cause."""

import io
import os
import re
import socket
import struct
import threading

import av
import numpy as np
import pytest
from PIL import Image
from tests.clips import noise_picture, write_clip
from tests.fuzz.test_fuzz import FINDINGS

from vsrkit.errors import VideoError
from vsrkit.video.boxes import encrypted_tracks
from vsrkit.video.opening import open_container, open_pipe
from vsrkit.video.probe import probe
from vsrkit.video.read import open_source

KEY = {
    "encryption_scheme": "cenc-aes-ctr",
    "encryption_key": "76a6c65c5ea762046bd749a2e632ccbb",
    "encryption_kid": "a7e61c373e219033c21091fa607bf3b8",
}


def count(source):
    return len(list(source.pictures()))


@pytest.fixture
def listener():
    """The port of a local server, and what connected to it."""
    server, seen = socket.create_server(("127.0.0.1", 0)), []

    def accept():
        while True:
            try:
                connection, address = server.accept()
            except OSError:
                return
            seen.append(address)
            connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server.getsockname()[1], seen
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def hls(what):
    return (
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-VERSION:7\n#EXTINF:1,\n{what}\n#EXT-X-ENDLIST\n"
    )


def dash(what):
    return (
        '<?xml version="1.0"?>\n<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT1S"><Period><AdaptationSet mimeType="video/mp4">'
        f'<Representation id="0" bandwidth="1"><BaseURL>{what}</BaseURL></Representation>'
        "</AdaptationSet></Period></MPD>"
    )


def concat(what):
    return f"ffconcat version 1.0\nfile '{what}'\n"


def sdp(what):
    port = re.search(r":(\d+)", what)
    return f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nm=video {port[1] if port else 1} RTP/AVP 96\n"


@pytest.mark.parametrize("make", [hls, dash, concat, sdp])
@pytest.mark.parametrize("name", ["in.m3u8", "in.mp4", "in"])
@pytest.mark.parametrize("where", ["secret.mp4", "file:secret.mp4", "http"])
def test_playlists_open_nothing(tmp_path, listener, make, name, where, monkeypatch):
    monkeypatch.chdir(tmp_path)
    port, seen = listener
    write_clip(tmp_path / "secret.mp4")
    accessed = _watch_reads(tmp_path / "secret.mp4")
    what = f"http://127.0.0.1:{port}/v.mp4" if where == "http" else where
    (tmp_path / name).write_text(make(what))
    with pytest.raises(VideoError, match="--follow-references") as error:
        open_source(tmp_path / name)
    assert "\n" not in str(error.value)
    with pytest.raises(VideoError, match="not opened"), open_pipe(io.BytesIO(make(what).encode())):
        pass
    assert seen == []
    assert accessed() == 0


def _watch_reads(path):
    """How often FFmpeg has read a file: its access time is set far back, and reads change it."""
    os.utime(path, (0, path.stat().st_mtime))
    return lambda: path.stat().st_atime


def test_what_looks_like_no_playlist_gets_no_protocol(tmp_path, listener):
    """The demuxers are refused even if the first bytes did not tell what the file is."""
    port, seen = listener
    write_clip(tmp_path / "secret.mp4")
    for text in (hls("secret.mp4"), hls(f"http://127.0.0.1:{port}/v.ts"), concat("secret.mp4")):
        (tmp_path / "in.m3u8").write_text("\n\n#\n" + text)
        with pytest.raises(VideoError):
            open_source(tmp_path / "in.m3u8")
    assert seen == []


@pytest.mark.parametrize("make", [hls, concat])  # this FFmpeg has no DASH demuxer
def test_playlists_are_followed_on_request(tmp_path, make, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"movflags": "+frag_keyframe+empty_moov+default_base_moof"}
    with av.open(str(tmp_path / "v.mp4"), "w", options=options) as file:
        stream = file.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for number in range(6):
            file.mux(stream.encode(noise_picture(number, 32, 24)))
        file.mux(stream.encode(None))
    text = make("v.mp4").replace("#EXTINF", '#EXT-X-MAP:URI="v.mp4"\n#EXTINF')
    (tmp_path / "list").write_text(text)
    (tmp_path / "list.m3u8").write_text(text)
    source = open_source("list.m3u8", follow_references=True)
    assert count(source) == 6
    with source.open() as container:
        assert len(list(container.decode(video=0))) == 6


def test_references_follow_to_addresses_on_request(tmp_path, listener):
    port, seen = listener
    (tmp_path / "in.ffconcat").write_text(
        f"ffconcat version 1.0\noption safe 0\nfile 'http://127.0.0.1:{port}/v.ts'\n"
    )
    (tmp_path / "in.m3u8").write_text(hls(f"http://127.0.0.1:{port}/v.ts"))
    with pytest.raises(VideoError):
        open_source(tmp_path / "in.m3u8", follow_references=True)
    assert seen  # the option does what it says, and the listener sees it


def box(kind, *content):
    data = b"".join(content)
    return struct.pack(">I4s", 8 + len(data), kind) + data


def children(data):
    place = 0
    while place + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        yield kind, data[place + 8 : place + size]
        place += size


def rebuilt(data, edit, path=()):
    """The boxes with `edit(path, content)` applied: a tuple of kinds, and bytes or None."""
    parents = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"dinf", b"edts"}
    made = []
    for kind, content in children(data):
        place = (*path, kind)
        content = rebuilt(content, edit, place) if kind in parents else content
        changed = edit(place, content)
        made.append(box(kind, content if changed is None else changed))
    return b"".join(made)


def test_external_data_of_mov_is_not_opened(tmp_path, monkeypatch):
    """A data reference that names another file, which holds the samples at the same places."""
    monkeypatch.chdir(tmp_path)
    write_clip(tmp_path / "secret.mov", frames=3)
    accessed = _watch_reads(tmp_path / "secret.mov")
    name = b"secret.mov"
    volume = b"\0" * 10 + bytes([1]) + b"x" * 27 + b"\0" * 12 + bytes([len(name)])
    alias = b"\0" * 4 + struct.pack(">HH", 0, 0)
    data = (tmp_path / "secret.mov").read_bytes()

    def edit(path, content):
        if path[-1] == b"dref":
            url = box(b"url ", b"\0\0\0\0", b"file:secret.mov\0")
            rsrc = box(b"alis", b"\0\0\0\0", alias, volume, name)
            return content[:4] + struct.pack(">I", 2) + url + rsrc
        if path[-1] == b"mdat":
            return bytes(len(content))
        return None

    os.utime(tmp_path / "secret.mov", (0, 0))
    (tmp_path / "in.mov").write_bytes(rebuilt(data, edit))
    with pytest.raises(VideoError):
        open_source(tmp_path / "in.mov")
    assert accessed() == 0


@pytest.mark.parametrize(
    "name",
    ["concat:a.mp4|b.mp4", "subfile,,start,0,end,9,,:a.mp4", "a%d.mp4", "http:x.mp4", "pipe:0.mkv",
     "Part 1:2.mp4", "-", "data:x.mkv", "a%03d.mkv", "*.mkv", "?.mp4"],
)  # fmt: skip
def test_names_that_mean_something_to_ffmpeg_are_names(tmp_path, name):
    write_clip(tmp_path / "other.mp4", frames=2)
    write_clip(tmp_path / "clip.mp4", frames=3)
    (tmp_path / "clip.mp4").rename(tmp_path / name)
    assert count(open_source(tmp_path / name)) == 3


def test_patterns_in_names_of_images_open_no_sequence(tmp_path):
    picture = Image.fromarray(np.zeros((8, 8, 3), np.uint8))
    for number in range(3):
        picture.save(tmp_path / f"a{number}.tga")
    picture.save(tmp_path / "x.tga")
    (tmp_path / "x.tga").rename(tmp_path / "a%d.tga")
    with pytest.raises(VideoError), open_container(tmp_path / "a%d.tga"):
        pass


def test_devices_and_named_pipes_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "in.mkv")
    with pytest.raises(VideoError, match="use a pipe"):
        probe(tmp_path / "in.mkv")
    with pytest.raises(VideoError, match="not a file"):
        probe("/dev/zero")


def write_encrypted(path):
    with av.open(str(path), "w", options=KEY) as file:
        stream = file.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(5):
            file.mux(stream.encode(noise_picture(number, 64, 48)))
        file.mux(stream.encode(None))
    return path


def test_an_encrypted_mp4_is_named(tmp_path):
    with pytest.raises(VideoError, match="encrypted"):
        probe(write_encrypted(tmp_path / "in.mp4"))


def ebml(identifier, content):
    return bytes.fromhex(identifier) + (0x10000000 | len(content)).to_bytes(4) + content


def test_an_encrypted_matroska_is_named(tmp_path):
    """ContentEncodings with an AES key, inserted into the track by hand."""
    data = write_clip(tmp_path / "a.mkv", frames=3, smooth=False).read_bytes()
    encryption = ebml("5035", ebml("47e1", b"\5") + ebml("47e2", b"0123456789abcdef"))
    whole, of_blocks, by_encryption = ebml("5031", b"\0"), ebml("5032", b"\1"), ebml("5033", b"\1")
    encoding = ebml("6240", whole + of_blocks + by_encryption + encryption)
    added = ebml("6d80", encoding)
    start = data.index(bytes.fromhex("1654ae6b"))
    width = 9 - data[start + 4].bit_length()
    size = int.from_bytes(data[start + 4 : start + 4 + width]) & ((1 << 7 * width) - 1)
    tracks = data[start + 4 + width : start + 4 + width + size]
    # The first entry follows the checksum, whose bytes are random.
    entry = tracks.index(b"\xae", 6 if tracks.startswith(b"\xbf") else 0)
    w = 9 - tracks[entry + 1].bit_length()
    inner = int.from_bytes(tracks[entry + 1 : entry + 1 + w]) & ((1 << 7 * w) - 1)
    track = ebml("ae", tracks[entry + 1 + w : entry + 1 + w + inner] + added)
    rest = data[start + 4 + width + size :]
    (tmp_path / "in.mkv").write_bytes(
        unknown_segment(data[:start]) + ebml("1654ae6b", track) + rest
    )
    with pytest.raises(VideoError, match="encrypted"):
        probe(tmp_path / "in.mkv")


def unknown_segment(data):
    """The start of a Matroska file, with a segment of unknown size."""
    place = data.index(bytes.fromhex("18538067")) + 4
    width = 9 - data[place].bit_length()
    unknown = (1 << 7 * width) - 1 | 1 << 7 * width
    return data[:place] + unknown.to_bytes(width) + data[place + width :]


def fragmented(path, frames=6):
    options = {"movflags": "+frag_every_frame+empty_moov+default_base_moof"}
    with av.open(str(path), "w", options=options) as file:
        stream = file.add_stream("libx264", rate=25, options={"bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for number in range(frames):
            file.mux(stream.encode(noise_picture(number, 32, 24)))
        file.mux(stream.encode(None))
    return path.read_bytes()


def test_segments_are_named(tmp_path):
    data = fragmented(tmp_path / "whole.mp4")
    cut = data.index(b"moof") - 4
    (tmp_path / "init.mp4").write_bytes(data[:cut])
    (tmp_path / "one.m4s").write_bytes(data[cut:])
    with pytest.raises(VideoError, match="initialisation segment, a header without any frames"):
        probe(tmp_path / "init.mp4")
    with pytest.raises(VideoError, match="segment of a fragmented file without its header"):
        probe(tmp_path / "one.m4s")
    assert count(open_source(tmp_path / "whole.mp4")) == 6
    plain = write_clip(tmp_path / "plain.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(plain[: plain.index(b"moov") - 4])
    with pytest.raises(VideoError, match="cut short: its index"):
        probe(tmp_path / "cut.mp4")


class Unseekable(io.RawIOBase):
    """A pipe that gives a few bytes at a time."""

    def __init__(self, data):
        self._data = io.BytesIO(data)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._data.read(size)


@pytest.mark.parametrize("kind", ["index at the end", "index first", "fragmented", "mkv", "ts"])
def test_pipes(tmp_path, kind):
    if kind == "fragmented":
        data = fragmented(tmp_path / "in.mp4")
    elif kind in ("mkv", "ts"):
        data = write_clip(tmp_path / f"in.{kind}").read_bytes()
    else:
        options = {"movflags": "+faststart"} if kind == "index first" else {}
        write_clip(tmp_path / "a.mkv")
        with (
            av.open(str(tmp_path / "a.mkv")) as old,
            av.open(str(tmp_path / "in.mp4"), "w", options=options) as new,
        ):
            stream = new.add_stream_from_template(old.streams.video[0])
            for packet in old.demux():
                if packet.dts is not None:
                    packet.stream = stream
                    new.mux(packet)
        data = (tmp_path / "in.mp4").read_bytes()
        assert (data.index(b"moov") < data.index(b"mdat")) == (kind == "index first")
    folder = tmp_path / "spool"
    folder.mkdir()
    with open_pipe(Unseekable(data), spool=folder) as container:
        assert len(list(container.decode(video=0))) == 6
    assert list(folder.iterdir()) == []


def test_a_table_that_claims_more_samples_than_bytes(tmp_path):
    """FFmpeg would allocate 24 bytes for each: 48 GB here."""

    def edit(path, content):
        return content[:4] + struct.pack(">II", 1, 2**31) if path[-1] == b"stsz" else None

    data = rebuilt(write_clip(tmp_path / "a.mp4").read_bytes(), edit)
    (tmp_path / "in.mp4").write_bytes(data)
    with pytest.raises(VideoError, match="claims 2147483648 samples"):
        probe(tmp_path / "in.mp4")


def write_repeating(path, chunks=30_000):
    """An mp4 whose index names the same large packet again and again."""
    data = write_clip(path, frames=1, width=256, height=256, smooth=False).read_bytes()
    found = {}

    def look(place, content):
        found[place[-1]] = content

    rebuilt(data, look)
    (offset,) = struct.unpack(">I", found[b"stco"][8:12])

    def edit(place, content):
        match place[-1]:
            case b"stco":
                return content[:4] + struct.pack(">I", chunks) + struct.pack(">I", offset) * chunks
            case b"stsz":
                size = len(found[b"mdat"]) // 2
                return content[:4] + struct.pack(">II", size, chunks)
            case b"stsc":
                return content[:4] + struct.pack(">IIII", 1, 1, 1, 1)
            case b"stts":
                return content[:4] + struct.pack(">III", 1, chunks, 512)
            case b"stss" | b"ctts":
                return content[:4] + struct.pack(">I", 0)
            case b"elst":
                return content[:4] + struct.pack(">I", 0)
        return None

    path.write_bytes(rebuilt(data, edit))


def test_an_index_that_repeats_the_same_bytes_ends(tmp_path):
    write_repeating(tmp_path / "in.mp4")
    assert (tmp_path / "in.mp4").stat().st_size < 400_000  # 30,000 packets of half of that
    with pytest.raises(VideoError, match="repeats the same"):
        count(open_source(tmp_path / "in.mp4"))


def test_a_decoder_that_gives_no_frames_ends(tmp_path, monkeypatch):
    """Packets of random bytes, more than the probe tries."""
    path = tmp_path / "in.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        file.start_encoding()
        for number in range(300):
            packet = av.Packet(b"\0\0\0\1\x41" + bytes(range(20)))
            packet.stream, packet.pts, packet.dts = stream, number, number
            packet.time_base = stream.time_base
            file.mux(packet)
    tried = []
    monkeypatch.setattr("vsrkit.video.probe.PROBED_PACKETS", 50)
    monkeypatch.setattr(
        "vsrkit.video.probe.packets",
        lambda container, stream: (tried.append(p) or p for p in container.demux(stream)),
    )
    with pytest.raises(VideoError, match="no frame"):
        probe(path)
    assert len(tried) == 50


def test_side_data_that_pyav_does_not_know(tmp_path):
    """Exif in JPEG is type 31, `ValueError: 31 is not a valid Type`; the others are still read."""
    exif = Image.Exif()
    exif[0x010E] = "description"
    exif[0x0112] = 6  # to be rotated
    picture = Image.fromarray(np.zeros((24, 32, 3), np.uint8))
    picture.save(tmp_path / "in.mjpeg", format="jpeg", exif=exif)
    source = open_source(tmp_path / "in.mjpeg")
    assert count(source) == 1
    assert source.info.display_matrix is not None
    assert source.info.rotation == -90


def test_an_encrypted_fragmented_mp4_is_named(tmp_path):
    """FFmpeg does not even read the header of some, so the sample entries tell."""
    path = write_encrypted(tmp_path / "in.mp4")
    damaged = path.read_bytes().replace(b"schm", b"free").replace(b"avcC", b"avcX")
    path.write_bytes(damaged)
    with pytest.raises(VideoError, match="is encrypted, its frames need a key"):
        probe(path)
    assert encrypted_tracks(path) == {0}
    assert encrypted_tracks(write_clip(tmp_path / "plain.mp4")) == set()


def test_a_file_that_makes_ffmpeg_seek_before_its_beginning(tmp_path, capfd):
    """PyAV would print the traceback of every such error but the first."""
    for name in ("seeks-before-its-beginning.y4m", "seeks-before-its-beginning.wmv"):
        with pytest.raises(VideoError, match="cannot read"):
            probe(FINDINGS / "videos" / name)
    assert "Traceback" not in capfd.readouterr().err


def test_a_format_that_ffmpeg_does_not_convert(tmp_path):
    path = tmp_path / "in.nut"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("rawvideo", rate=25)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "bgr4"
        file.start_encoding()
        packet = av.Packet(bytes(128))
        packet.stream, packet.pts, packet.dts = stream, 0, 0
        file.mux(packet)
    with pytest.raises(VideoError, match="pictures in the format bgr4 are not supported"):
        probe(path)


def test_a_scrambled_transport_stream_is_named(tmp_path):
    data = bytearray(write_clip(tmp_path / "a.ts", options={"bf": "0"}).read_bytes())
    for place in range(0, len(data), 188):
        if int.from_bytes(data[place + 1 : place + 3]) & 0x1FFF == 0x100:
            data[place + 3] |= 0x80
            data[place + 12 : place + 188] = bytes(176)
    (tmp_path / "in.ts").write_bytes(data)
    with pytest.raises(VideoError, match="is encrypted"):
        probe(tmp_path / "in.ts")
    assert probe(tmp_path / "a.ts").codec == "h264"


def test_protected_windows_media_is_named(tmp_path):
    """With the header object of its license; the frames would be decoded to noise."""
    data = write_clip(tmp_path / "a.wmv", codec="wmv2").read_bytes()
    texts = b"".join(
        struct.pack("<I", 4) + text for text in (b"abcd", b"DRM\0", b"key\0", b"url\0")
    )
    identifier = bytes.fromhex("fbb3112223bdd211b4b700a0c955fc6e")
    added = identifier + struct.pack("<Q", 24 + len(texts)) + texts
    size, count = struct.unpack("<QI", data[16:28])
    header = data[:16] + struct.pack("<QI", size + len(added), count + 1) + data[28:30]
    (tmp_path / "in.wmv").write_bytes(header + added + data[30:])
    with pytest.raises(VideoError, match="is encrypted"):
        probe(tmp_path / "in.wmv")


def test_segments_of_any_suffix_are_followed_on_request(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_clip(tmp_path / "a.ts", options={"bf": "0"}).rename(tmp_path / "segment.bin")
    (tmp_path / "list.m3u8").write_text(hls("segment.bin"))
    assert count(open_source(tmp_path / "list.m3u8", follow_references=True)) == 6
