"""Random damage to files: to their structure, to values in JSON, and to bytes."""

import io
import json
import zipfile

from tests.fuzz.elements import (
    as_safetensors,
    elements_of,
    safetensors_header,
    with_png_checksums,
)

EDGES = [0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF]
EDGES += [0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
VALUES = [None, True, False, 0, 1, -1, 2, 3, 7, 64, 10**9, 2**31, 2**63, -(2**63), 10**30, 0.5]
VALUES += [float("nan"), float("inf"), -1e308, "", "x", "\0", "1/0", "../../x", "\ud800", "é" * 300]
VALUES += [[], {}, [[]], [None], {"": None}, [1, 2], "[bold]", "%s", "-1", "auto", "float32"]


def damage(data, random):
    """A damaged copy of a file with one to four changes."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        change = random.choice((_structure, _structure, _structure, _bits, _cut, _numbers))
        data = change(data, random) or data
    if data.startswith(b"\x89PNG") and random.random() < 0.7:
        return with_png_checksums(data)
    return data


def _structure(data, random):
    elements = elements_of(data)
    if not elements:
        return _bits(data, random)
    change = random.choice((_remove, _repeat, _swap, _resize, _retype, _shorten, _scramble))
    return change(data, elements, random)


def _spliced(data, at, end, new, parents, random):
    """`data[at:end]` replaced, usually with the sizes of the elements around it put right."""
    made = bytearray(data)
    if random.random() < 0.7:
        for parent in parents:
            if parent.form:
                place, field = parent.size_field(len(new) - (end - at))
                made[place : place + len(field)] = field
    made[at:end] = new
    return bytes(made)


def _remove(data, elements, random):
    one = random.choice(elements)
    return _spliced(data, one.start, one.end, b"", one.parents, random)


def _repeat(data, elements, random):
    one, where = random.choice(elements), random.choice(elements)
    piece = data[one.start : one.end]
    if len(piece) > 200_000:
        return None
    times = random.choice((1, 1, 2, 30)) if len(piece) < 5000 else 1
    return _spliced(data, where.start, where.start, piece * times, where.parents, random)


def _swap(data, elements, random):
    a, b = (
        sorted(random.sample(elements, 2), key=lambda e: e.start) if elements[1:] else (None,) * 2
    )
    if a is None or a.end > b.start:
        return None
    parts = data[: a.start], data[b.start : b.end], data[a.end : b.start], data[a.start : a.end]
    return b"".join((*parts, data[b.end :]))


def _resize(data, elements, random):
    sized = [e for e in elements if e.form]
    if not sized:
        return _numbers(data, random)
    one = random.choice(sized)
    length = one.end - one.body
    near = [length + step for step in (-8, -1, 1, 8)] + [length * 2, length // 2]
    place, field = one.size_field(size=max(0, random.choice((*EDGES, *near))))
    return data[:place] + field + data[place + len(field) :]


def _retype(data, elements, random):
    """The name of an element replaced by that of another."""
    one, other = random.choice(elements), random.choice(elements)
    width = 4
    if elements[0].form == "vint":
        width = one.size_at - one.start
        if width != other.size_at - other.start:
            return None
    at, source = (
        e.start + (4 if e.counts == "all" and e.form == ">I" else 0) for e in (one, other)
    )
    return data[:at] + data[source : source + width] + data[at + width :]


def _shorten(data, elements, random):
    """The end of an element cut off, or bytes added to it."""
    one = random.choice(elements)
    keep = random.randint(one.body, one.end)
    more = random.randbytes(random.choice((0, 0, 1, 4, 64)))
    return _spliced(data, keep, one.end, more, (*one.parents, one), random)


def _scramble(data, elements, random):
    one = random.choice(elements)
    if one.end <= one.body:
        return None
    made = bytearray(data)
    for _ in range(random.choice((1, 2, 8))):
        place = random.randrange(one.body, min(one.end, one.body + 400))
        _write_number(made, place, random)
    return bytes(made)


def _write_number(made, place, random):
    width = random.choice((1, 2, 4, 8))
    value = random.choice(EDGES) % (1 << 8 * width)
    made[place : place + width] = value.to_bytes(width, random.choice(("big", "little")))[
        : len(made) - place
    ]


def _numbers(data, random):
    if not data:
        return None
    made = bytearray(data)
    reach = len(made) if random.random() < 0.5 else min(600, len(made))
    for _ in range(random.choice((1, 1, 4))):
        _write_number(made, random.randrange(reach), random)
    return bytes(made)


def _bits(data, random):
    if not data:
        return None
    made = bytearray(data)
    reach = len(made) if random.random() < 0.7 else min(300, len(made))
    for _ in range(random.choice((1, 3, 20, 200))):
        made[random.randrange(reach)] ^= 1 << random.randrange(8)
    return bytes(made)


def _cut(data, random):
    if not data:
        return None
    if random.random() < 0.6:
        return data[: random.randrange(len(data))]
    a, b = sorted(random.randrange(len(data)) for _ in range(2))
    return data[:a] + random.choice((b"", bytes(min(b - a, 5000)))) + data[b:]


def damage_json(value, random):
    """JSON with one to three values replaced, removed, repeated or swapped."""
    value = json.loads(json.dumps(value))
    for _ in range(random.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return random.choice(VALUES)
        holder, key = random.choice(places)
        kind = random.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, holder[random.randrange(len(holder))])
        elif kind == 2:
            other, place = random.choice(places)
            holder[key] = json.loads(json.dumps(other[place]))
        elif kind == 3 and isinstance(holder, dict):
            holder[random.choice(("x", "", "format", key + "_"))] = holder.pop(key)
        elif isinstance(holder[key], int | float) and random.random() < 0.5:
            holder[key] = random.choice((holder[key] + 1, holder[key] - 1, -holder[key], 1 << 20))
        else:
            holder[key] = random.choice(VALUES)
    return value


def _places(value):
    """Every (container, key) of JSON."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def damage_safetensors(data, random):
    """A safetensors file with damage to its header, to vsrkit's metadata in it, or to its bytes."""
    kind = random.randrange(4)
    if kind == 0:
        return damage(data, random)
    header, rest = safetensors_header(data)
    about = header.get("__metadata__", {}).get("vsrkit")
    if kind < 3 and about:
        header["__metadata__"]["vsrkit"] = json.dumps(damage_json(json.loads(about), random))
    else:
        header = damage_json(header, random)
    return as_safetensors(header, rest)


def damage_zip(data, random):
    """A zip file with damage to one of its members, its names or its bytes."""
    if random.random() < 0.3:
        return damage(data, random)
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
    place = random.randrange(len(members))
    name, content = members[place]
    kind = random.randrange(5)
    if kind == 0:
        members.pop(place)
    elif kind == 1:
        members[place] = random.choice(("../" + name, "/" + name, name + "\n", name * 2)), content
    elif kind == 2:
        members[place] = name, data  # the archive in itself
    elif kind == 3:
        members[place] = name, members[random.randrange(len(members))][1]
    else:
        members[place] = name, damage(content, random)
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as new:
        for each, text in members:
            new.writestr(each, text)
    return out.getvalue()
