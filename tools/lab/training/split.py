"""Which pictures are kept out of training: by person and by source, never by frame.

A source is `train`, or kept out: `held` (networks are compared on it while they are made) or `reserve` (looked at
last).
"""

import hashlib
import re
from pathlib import PurePath

RESERVE_CLIPS = {
    "corpus/05_default_juggle.mp4", "corpus/selfie_segmentation_web.mp4", "corpus/sample_fragmented.mp4",
    # one man, who is in no other clip
    "clips/signing-eat.mkv", "clips/signing-night.mkv", "clips/signing-sister.mkv",
}  # fmt: skip
RESERVE_STILLS = {
    "photos-jetson": "airplane-0 bottle-0 bird-0 black-bear cat-1 city-0 dog-0 fruit-9 horse-0 humans-1 humans-7 "
    "object-7 peds-0 peds-1 peds-3 room-2 room-7 trail-2".split(),
}
HELD_CLIPS = {"people/clips/his-girl-friday.mp4", "people/clips/google-paris.mp4"}
HELD_GROUPS = {"photos-jetson"}
HELD_STILLS = {
    "scenes-gov": "pif-website-791160ff pif-website-80224cbe pif-website-8274bb33 pif-website-93ae153a "
    "pif-website-ada85465 pif-website-bb60d9d5 pif-website-c4081de9 pif-website-24b38a94".split(),
}
HELD_SOURCES = ("website-redesign-", "explorer-1-")  # of the groups `more-*`: how their files' names begin
# Of these, one in n, by the name without its last numbers: pictures of one person or thing stay together.
HELD_SHARES = {
    "portraits-gov": 10, "portraits-house": 10, "portraits-senate": 10, "hands-mediapipe": 4,
    "things-azure": 2, "things-dali": 2, "photos-dali": 2, "nobody-gov": 2,
}  # fmt: skip


def split(name: str) -> str:
    """`train`, `held` or `reserve` of a file, by its path below the shared folder."""
    group, stem = PurePath(name).parent.name, PurePath(name).stem
    if name in RESERVE_CLIPS or _named(stem, RESERVE_STILLS.get(group, [])):
        return "reserve"
    if name in HELD_CLIPS or group in HELD_GROUPS or _named(stem, HELD_STILLS.get(group, [])):
        return "held"
    if group.startswith("more-") and stem.startswith(HELD_SOURCES):
        return "held"
    share = HELD_SHARES.get(group)
    who = stem if group.endswith("-gov") else re.sub(r"(-[0-9]+)?-[0-9a-f]{4}$", "", stem)
    return "held" if share and int(hashlib.sha256(who.encode()).hexdigest(), 16) % share == 0 else "train"


def _named(stem: str, names: list[str]) -> bool:
    return any(stem == name or stem.startswith(f"{name}-") for name in names)
