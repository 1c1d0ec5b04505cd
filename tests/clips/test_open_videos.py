"""Videos stay open from clip to clip, but few of them, and never as they were before a change."""

import gc
import os
from pathlib import Path

import pytest
from numbered import numbered

from segmentation.clips import open_videos
from segmentation.clips.decode import opened
from segmentation.clips.index import index_of
from segmentation.clips.open_videos import OpenVideos
from segmentation.errors import InputError


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return numbered(tmp_path / "a.mp4", 24, options={"g": "8", "bf": "0"})


def open_files(folder: Path) -> int:
    """Returns how many descriptors of this process lead into a folder."""
    targets = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(target.startswith(str(folder)) for target in targets)


def test_a_video_is_opened_once(video: Path) -> None:
    videos, lent = OpenVideos(), []
    for _ in range(3):
        with videos.lent(str(video)) as container:
            lent.append(container)
    assert lent[0] is lent[1] is lent[2] and open_files(video.parent) == 1


def test_no_two_threads_get_the_same(video: Path) -> None:
    videos = OpenVideos()
    with videos.lent(str(video)) as first, videos.lent(str(video)) as second:
        assert first is not second
    assert open_files(video.parent) == 2


def test_packets_are_those_of_a_video_opened_anew(video: Path) -> None:
    videos, index = OpenVideos(), index_of(str(video))
    for number in (20, 3, 9, 9, 23, 0):
        with opened(index, number, videos.lent) as (_, kept), opened(index, number) as (_, anew):
            found, true = ([(packet.pts, bytes(packet)) for packet in packets] for packets in (kept, anew))
        assert found == true and found[0][0] == index.keys[number]
    assert open_files(video.parent) == 1


def test_few_stay_open(tmp_path: Path, video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_videos, "_MOST_IDLE", 2)
    videos, names = OpenVideos(), [tmp_path / f"{place}.mp4" for place in range(4)]
    for name in names:
        name.write_bytes(video.read_bytes())
        with videos.lent(str(name)):
            pass
    assert open_files(tmp_path) == 2
    with videos.lent(str(names[-1])):
        assert open_files(tmp_path) == 2
    del videos
    gc.collect()
    assert open_files(tmp_path) == 0


def test_a_file_that_has_changed_is_opened_anew(tmp_path: Path, video: Path) -> None:
    videos, sizes = OpenVideos(), []
    others = [numbered(tmp_path / f"{width}.mp4", 8, size=(width, 96)).read_bytes() for width in (320, 480)]
    for content in (None, others[0], others[1]):
        if content is others[0]:
            (tmp_path / "new.mp4").write_bytes(content)
            (tmp_path / "new.mp4").replace(video)
        elif content is not None:
            video.write_bytes(content)
        with videos.lent(str(video)) as container:
            sizes.append(container.streams.video[0].width)
    assert sizes == [160, 320, 480]
    video.unlink()
    with pytest.raises(InputError, match=r"a\.mp4: cannot be opened"), videos.lent(str(video)):
        pass


def test_after_an_error_it_is_closed(video: Path) -> None:
    videos = OpenVideos()
    with pytest.raises(ValueError, match="any"), videos.lent(str(video)):
        raise ValueError("any")
    assert open_files(video.parent) == 0
