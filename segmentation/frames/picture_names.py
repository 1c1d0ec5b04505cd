"""Names of pictures: their suffixes, and the numbers of those that are frames of one video."""

import re
from pathlib import Path

PICTURES = (".png", ".jpg", ".jpeg", ".webp")  # one picture a file
PICTURE_SUFFIXES = frozenset(
    (
        *PICTURES,
        *".jpe .jfif .bmp .tif .tiff .avif .heic .heif .pbm .pgm .ppm .pnm .pam .jp2 .j2k".split(),
        *".tga .dds .sgi .pcx .xbm .xwd .qoi .dpx".split(),
    )
)  # read
NUMBER = re.compile(r"%(0\d+)?d")  # in the names of numbered pictures, as FFmpeg has it


def is_sequence(path: str) -> bool:
    """Returns whether `path` stands for numbered pictures, such as `frames/%05d.png`, and is no file itself."""
    name = Path(path)
    if "://" in path:
        return False
    return name.suffix.lower() in PICTURE_SUFFIXES and len(NUMBER.findall(name.name)) == 1 and not name.exists()


def numbers_of(path: Path) -> list[int]:
    """Returns the numbers, in order, of the files for which a name such as `%05d.png` stands."""
    pattern, folder = name_pattern(path.name), path.parent
    names = {file.name for file in folder.iterdir() if pattern.fullmatch(file.name)} if folder.is_dir() else set()
    found = {int(match[1]) for name in names if (match := pattern.fullmatch(name))}
    return sorted(number for number in found if numbered_name(path.name, number) in names)


def numbered_name(name: str, number: int) -> str:
    """Returns the name for which a name such as `%05d.png` stands with a number."""
    return NUMBER.sub(lambda form: form[0] % number, name, count=1).replace("%%", "%")


def name_pattern(name: str) -> re.Pattern[str]:
    """Returns a pattern of the names for which a name such as `%05d.png` stands. Its group is the number."""
    parts = NUMBER.sub("\0", name).replace("%%", "%").split("\0")
    return re.compile(r"(\d+)".join(map(re.escape, parts)))
