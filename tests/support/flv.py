"""FLV, changed tag by tag."""


def without_early_sound(flv: bytes, begin: int) -> bytes:
    """Leaves out the sound before `begin` ms, but for its parameters, and what announces it (FLV 10.1, annex E)."""
    parts, at, held = [flv[:4] + b"\x01" + flv[5:13]], 13, b""
    while at < len(flv):
        kind, size, time = flv[at], int.from_bytes(flv[at + 1 : at + 4]), int.from_bytes(flv[at + 4 : at + 7])
        tag, at = flv[at : at + 11 + size + 4], at + 11 + size + 4
        if kind == 18:  # metadata, which names the codec
            continue
        if kind == 8 and time < begin:
            held = held or tag[:4] + begin.to_bytes(3) + tag[7:]
        else:
            parts += [held, tag] if kind == 8 else [tag]
            held = b"" if kind == 8 else held
    return b"".join(parts)
