"""Batches of clips: which ones, in which order, and that they are the same whatever the threads do."""

import shutil
import threading
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from barcode import read
from numbered import all_frames, damage, numbered
from videos import Synthetic

from segmentation.clips import Batch, ClipDataset, ClipLoader, Output, Window, host_clips
from segmentation.clips import loader as loader_module
from segmentation.clips.index import VideoIndex
from segmentation.clips.order import runs
from segmentation.errors import BackendError, ConfigError, InputError
from segmentation.gpu.discovery import find_gpu

LENGTH = 4
SMALL = {"input": Output(size=(48, 48), crop="random", flip=True, dtype="float16"), "whole": Output(dtype="uint8")}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos of 30 to 110 frames, and what is no video or too short."""
    folder = tmp_path_factory.mktemp("videos")
    for place in range(5):
        numbered(folder / f"{place}.mp4", 30 + 20 * place, options={"g": "12", "bf": "2"})
    numbered(folder / "short.mp4", LENGTH - 1)
    (folder / "notes.txt").write_text("no video")
    return folder


@pytest.fixture(scope="module")
def dataset(videos: Path) -> ClipDataset:
    return ClipDataset(videos, length=LENGTH)


def clips(loader: ClipLoader) -> list[int]:
    return [clip for batch in loader for clip in batch.clips.tolist()]


def test_a_dataset_has_the_clips_of_its_videos(dataset: ClipDataset) -> None:
    assert [Path(index.path).name for index in dataset.videos] == [f"{n}.mp4" for n in range(5)]
    assert {Path(path).name for path in dataset.left_out} == {"short.mp4", "notes.txt"}
    assert Counter(dataset.video.tolist()) == {n: (30 + 20 * n) // LENGTH for n in range(5)}
    clip = dataset[8]  # the second one of the second video
    assert (Path(clip.path).name, clip.numbers) == ("1.mp4", (4, 5, 6, 7))
    assert [read(np.frombuffer(f.planes[0], np.uint8).reshape(96, -1)[:, :160])[0] for f in clip.frames] == [4, 5, 6, 7]
    assert np.allclose(clip.pts, np.arange(4, 8) / 30)


def test_steps_and_strides(videos: Path) -> None:
    path = videos / "0.mp4"
    assert len(ClipDataset(path, length=LENGTH, step=1)) == 27
    wide = ClipDataset(path, length=3, stride=5)
    assert (wide.span, len(wide), wide.numbers(1)) == (11, 2, (15, 20, 25))
    with pytest.raises(InputError, match=r"holds no clip of 31 frames .*30 frames"):
        ClipDataset(path, length=31)
    with pytest.raises(InputError, match=r"notes\.txt"):
        ClipDataset([path, videos / "notes.txt"], length=4)
    with pytest.raises(ConfigError, match="stride 0"):
        ClipDataset(path, length=4, stride=0)
    with pytest.raises(ConfigError, match=r"length 2\.5: must be a whole number"):
        ClipDataset(path, length=2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("shuffle", ["pool", "full", False])
def test_an_epoch_has_each_clip_once(dataset: ClipDataset, shuffle: Any) -> None:
    loader = ClipLoader(dataset, 8, outputs=SMALL, shuffle=shuffle, window=2, drop_last=False, workers=2)
    first = clips(loader)
    assert sorted(first) == list(range(len(dataset)))
    second = clips(loader)
    assert sorted(second) == sorted(first) and (second == first) == (shuffle is False)
    loader.set_epoch(0)
    assert clips(loader) == first


def test_batches_have_what_their_clips_show(dataset: ClipDataset) -> None:
    loader = ClipLoader(dataset, 5, outputs=SMALL, window=2)
    batches = list(loader)
    assert len(batches) == len(loader) == len(dataset) // 5
    for batch in batches:
        assert batch["input"].shape == (5, LENGTH, 3, 48, 48) and batch["input"].dtype == np.float16
        assert batch["whole"].shape == (5, LENGTH, 3, 96, 160) and batch["whole"].dtype == np.uint8
        for place, clip in enumerate(batch.clips):
            assert batch.video[place] == dataset.videos[dataset.video[clip]].path
            shown = [read(picture[1])[0] for picture in batch["whole"][place].astype(np.uint8)]
            assert shown == list(dataset.numbers(clip)) and batch.first[place] == shown[0]
            assert np.allclose(batch.pts[place], np.array(shown) / 30)
            assert all(np.array_equal(batch[name][place], made) for name, made in loader.sample(clip).items())


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        a.clips.tolist() == b.clips.tolist() and a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)
        for a, b in zip(first, second, strict=True)
    )


def test_threads_change_nothing(dataset: ClipDataset) -> None:
    loaders = (ClipLoader(dataset, 8, outputs=SMALL, seed=3, workers=n, ahead=n) for n in (1, 4))
    assert same(*map(list, loaders))


def test_clips_behind_one_keyframe_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each would be decoded from the keyframe, or a video without an index from its beginning, again."""
    for name, codec in (("a.mp4", "libx264"), ("b.avi", "mpeg4")):
        numbered(tmp_path / name, 32, codec, options={"g": "16", "bf": "0", "sc_threshold": "0"})
    dataset = ClipDataset([tmp_path / "a.mp4", tmp_path / "b.avi"], length=LENGTH)
    asked: list[tuple[str, list[int]]] = []
    inner = host_clips.decoded

    def watched(index: VideoIndex, numbers: list[int], **options: Any) -> Any:
        asked.append((Path(index.path).name, numbers))
        return inner(index, numbers, **options)

    monkeypatch.setattr(host_clips, "decoded", watched)
    assert sorted(clips(ClipLoader(dataset, 4, outputs=SMALL, shuffle="full", ahead=3))) == list(range(16))
    halves = [("a.mp4", list(range(16))), ("a.mp4", list(range(16, 32)))]
    assert sorted(asked) == [*halves, ("b.avi", list(range(32)))]


@pytest.mark.parametrize(
    ("group", "step", "length", "expected"),
    [
        (120, 16, 16, [8, 7, 1]),
        (260, 16, 16, [16]),  # the video is one group of pictures
        (10, 16, 16, [3, 3, 3, 3, 3, 1]),
        (30, 16, 16, [4, 4, 4, 3, 1]),  # groups of two clips
        (260, 1, 16, [40, 41, 41, 41, 41, 41]),  # as many frames as the clips of long runs that don't overlap
        (120, 1, 4, [60, 60, 60, 60, 17]),
    ],
)
def test_runs_end_where_groups_of_pictures_do(
    group: int, step: int, length: int, expected: list[int], tmp_path: Path
) -> None:
    for name in ("a.mp4", "b.mp4"):
        numbered(tmp_path / name, 260, "libx264", options={"g": str(group), "bf": "0", "sc_threshold": "0"})
    dataset = ClipDataset(tmp_path, length=length, step=step)
    found = runs(dataset, single=False)
    assert [len(run) for run in found] == 2 * expected
    assert [clip for run in found for clip in run] == list(range(len(dataset)))


@pytest.mark.parametrize(("ahead", "workers", "begun"), [(None, 1, 1 + 12), (None, 3, 1 + 3 * 12), (2, 3, 1 + 2)])
def test_each_thread_has_a_run_ahead(
    dataset: ClipDataset, ahead: int | None, workers: int, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has 12 clips, so that three batches of one clip would keep one thread busy. The program may want that."""
    asked: list[int] = []
    inner = loader_module._Samples.begin

    def watched(self: Any, count: int) -> None:
        asked.append(count)
        inner(self, count)

    monkeypatch.setattr(loader_module._Samples, "begin", watched)
    next(iter(ClipLoader(dataset, 1, outputs=SMALL, shuffle=False, workers=workers, ahead=ahead)))
    assert asked[0] == begun


def test_the_next_batch_is_put_together_meanwhile(videos: Path) -> None:
    """The program that takes batches would wait for that work, and a GPU for the program."""
    called: list[int] = []
    second = threading.Event()

    def label(path: str, first: int, windows: Mapping[str, Window]) -> None:
        called.append(threading.get_ident())
        if len(called) == 2 * 8:
            second.set()

    batches = iter(ClipLoader(ClipDataset(videos, length=LENGTH, labels=label), 8, outputs=SMALL))
    next(batches)
    assert second.wait(240)
    assert len(set(called)) == 1 and threading.get_ident() not in called
    next(batches)


@pytest.mark.parametrize("shuffle", ["pool", "full", False])
def test_a_loader_goes_on_where_another_stood(dataset: ClipDataset, shuffle: Any) -> None:
    def loader(**options: Any) -> ClipLoader:
        return ClipLoader(dataset, 8, outputs=SMALL, shuffle=shuffle, window=2, **options)

    all_of_it, left = loader(), loader()
    whole = [*all_of_it, *all_of_it]  # two epochs
    begun = iter(left)
    for _ in range(3):
        next(begun)
    state = left.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    assert same([*resumed, *resumed], whole[3:])
    assert len(repr(state)) < 300
    with pytest.raises(ConfigError, match="seed"):
        loader(seed=1).load_state_dict(state)
    with pytest.raises(ConfigError, match="fingerprint"):
        other = ClipDataset([index.path for index in dataset.videos[:2]], length=LENGTH)
        ClipLoader(other, 8, shuffle=shuffle, window=2).load_state_dict(state)


@pytest.mark.parametrize("shuffle", ["pool", "full", False])
def test_ranks_get_as_many_clips_and_none_twice(dataset: ClipDataset, shuffle: Any) -> None:
    loaders = [ClipLoader(dataset, 4, outputs=SMALL, shuffle=shuffle, window=2, rank=n, world=3) for n in range(3)]
    shares = [clips(loader) for loader in loaders]
    assert len({len(share) for share in shares}) == 1 and len(shares[0]) > len(dataset) / 3 * 0.8
    assert len({clip for share in shares for clip in share}) == sum(map(len, shares))


def test_crops_follow_from_the_clip_and_the_epoch(dataset: ClipDataset) -> None:
    loader = ClipLoader(dataset, 8, outputs=SMALL)
    first, again, other = loader.sample(3, 0), loader.sample(3, 0), [loader.sample(3, n) for n in range(1, 6)]
    assert np.array_equal(first["input"], again["input"])
    assert any(not np.array_equal(first["input"], sample["input"]) for sample in other)


@pytest.mark.parametrize("on_error", ["raise", "skip", "repeat"])
def test_damage_is_never_silent(tmp_path: Path, on_error: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = numbered(tmp_path / "a.mp4", 40, options={"g": "8", "bf": "0"}, size=(320, 240))
    dataset = ClipDataset(path, length=LENGTH)
    damage(path, 18)
    loader = ClipLoader(dataset, 5, shuffle=False, on_error=on_error)
    if on_error == "raise":
        for _ in range(2):  # the batch that was not handed out is not behind the loader
            with pytest.raises(InputError, match=r"a\.mp4: frame \d+ can't be decoded"):
                list(loader)
            assert loader.state_dict()["batch"] == 0
        return
    batches = list(loader)
    bad = set(loader.damaged)
    assert bad and len(bad) <= 2 and all("can't be decoded" in reason for reason in loader.damaged.values())
    found = [clip for batch in batches for clip in batch.clips.tolist()]
    assert not bad & set(found) and set(found) | bad == set(range(10))
    assert len(found) == (10 if on_error == "repeat" else 10 - len(bad))
    assert sum("is left out" in line for line in caplog.messages) == len(bad)


def test_a_batch_without_a_whole_clip(tmp_path: Path) -> None:
    """Left out on one rank, it would keep the others waiting."""
    dataset = ClipDataset(path := numbered(tmp_path / "a.mp4", 24, options={"g": "8", "bf": "0"}), length=8)
    damage(path, 9)
    assert clips(ClipLoader(dataset, 1, shuffle=False, on_error="skip")) == [0, 2]
    with pytest.raises(InputError, match=r"no clip of a batch .*frame 9 can't be decoded"):
        list(ClipLoader(dataset, 1, shuffle=False, on_error="repeat"))


@pytest.fixture
def masked(tmp_path: Path) -> ClipDataset:
    """The masks are the bars of the picture itself, at half its size."""
    numbered(tmp_path / "a.mp4", 24, options={"qp": "0"})
    (tmp_path / "masks").mkdir()
    numbered(tmp_path / "masks" / "a.segmented.masks.mkv", 24, "ffv1", size=(80, 48), pix_fmt="gray")
    return ClipDataset(tmp_path / "a.mp4", length=LENGTH, masks=tmp_path / "masks")


def test_masks_get_the_same_crop(masked: ClipDataset) -> None:
    output = Output(size=(60, 60), crop="random", flip=True, dtype="uint8", color="ycbcr")
    for batch in ClipLoader(masked, 3, outputs={"input": output}):
        masks = batch["masks"]
        assert masks.shape == (3, LENGTH, 60, 60) and masks.dtype == np.uint8
        for place in range(3):
            same = (masks[place] > 125) == (batch["input"][place, :, 0] > 125)
            assert same.mean() > 0.9
        assert batch.labels == []


def test_masks_may_be_pictures(masked: ClipDataset) -> None:
    folder = Path(masked.masks[0].path).parent / "a"
    video = Path(masked.videos[0].path)
    folder.mkdir()
    for number, frame in enumerate(all_frames(Path(masked.masks[0].path)), 7):
        cv2.imwrite(str(folder / f"50%-{number:03}.png"), frame.to_ndarray(format="gray"))
    Path(masked.masks[0].path).rename(folder.parent / "b.masks.mkv")
    pictures = ClipDataset(video, length=LENGTH, masks=folder.parent)
    Path(folder.parent / "b.masks.mkv").rename(masked.masks[0].path)
    for number in range(len(masked)):
        first, second = (ClipLoader(one, 3, outputs=SMALL).sample(number)["masks"] for one in (masked, pictures))
        assert np.array_equal(first, second)
    Path(masked.masks[0].path).unlink()
    (folder / "50%-010.png").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"frame 3 can't be decoded"):
        ClipLoader(pictures, 3).sample(0)
    (folder / "50%-010.png").unlink()
    with pytest.raises(InputError, match=r"not numbered one after the other like 50%-007\.png"):
        ClipDataset(video, length=LENGTH, masks=folder.parent)
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="has no masks; looked for"):
        ClipDataset(video, length=LENGTH, masks=folder.parent)


def test_labels_may_depend_on_what_is_shown(videos: Path) -> None:
    """Boxes, for one, have to be moved and mirrored like the picture."""

    def label(path: str, first: int, windows: Mapping[str, Window]) -> tuple[str, int, Window]:
        return Path(path).name, first, windows["input"]

    dataset = ClipDataset(videos, length=LENGTH, labels=label)
    outputs = {
        "input": Output(size=(48, 48), scale=96, crop="random", flip=True, dtype="uint8", color="ycbcr"),
        "whole": Output(dtype="uint8", color="ycbcr"),
    }
    seen = set()
    for batch in islice(ClipLoader(dataset, 4, outputs=outputs), 5):
        for place, (name, first, window) in enumerate(batch.labels):
            assert (name, first) == (Path(batch.video[place]).name, batch.first[place])
            assert batch.windows[place] == {"input": window, "whole": (0, 0, 96, 160, False)}
            top, left, height, width, mirrored = window
            part = batch["whole"][place, :, 0, top : top + height, left : left + width].astype(int)
            assert abs((part[..., ::-1] if mirrored else part) - batch["input"][place, :, 0]).max() <= 1
            seen.add(mirrored)
    assert seen == {False, True}


def test_masks_of_another_video_are_refused(tmp_path: Path) -> None:
    numbered(tmp_path / "a.mp4", 24)
    numbered(tmp_path / "a.masks.mkv", 20, "ffv1", pix_fmt="gray")
    with pytest.raises(InputError, match=r"has 20 masks, and .*a\.mp4 has 24 frames"):
        ClipDataset(tmp_path / "a.mp4", length=LENGTH, masks=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size 0"),
        ({"batch_size": 2.0}, r"batch_size 2\.0: must be a whole number"),
        ({"batch_size": 90}, "batch_size 90: an epoch has 85 clips, no batch"),
        ({"batch_size": 50, "world": 2}, "clips for each of 2 ranks, no batch"),
        ({"rank": 2, "world": 2}, "rank 2"),
        ({"shuffle": "some"}, "shuffle 'some'"),
        ({"on_error": "ignore"}, "on_error 'ignore'"),
        ({"outputs": {"masks": Output()}}, "can't be called 'masks'"),
        ({"device": "gpu"}, "device 'gpu': write auto, cpu, cuda or cuda:N"),
    ],
)
def test_what_can_not_be_is_one_line(dataset: ClipDataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClipLoader(dataset, **{"batch_size": 2, **options})


def test_epochs_are_counted_from_0(dataset: ClipDataset) -> None:
    with pytest.raises(ConfigError, match="epoch -1: must be at least 0"):
        ClipLoader(dataset, 2).set_epoch(-1)


def test_pictures_of_several_sizes_need_a_size(tmp_path: Path) -> None:
    """A batch of them is refused before it is decoded; a clip alone is none."""
    for name, size in (("a.mkv", (64, 48)), ("b.mkv", (48, 64))):
        Synthetic(size=size, pts=range(4)).write(tmp_path / name)
    mixed = ClipDataset(tmp_path, length=2)
    with pytest.raises(ConfigError, match=r"output 'input': .*a\.mkv has 64x48 and .*b\.mkv has 48x64; give size="):
        ClipLoader(mixed, batch_size=2)
    shapes = {batch["input"].shape for batch in ClipLoader(mixed, batch_size=1)}
    assert shapes == {(1, 2, 3, 48, 64), (1, 2, 3, 64, 48)}
    assert len(list(ClipLoader(mixed, batch_size=2, outputs={"input": Output(size=(8, 8))}))) == 2


@pytest.mark.skipif(find_gpu() is not None, reason="there is a GPU")
def test_without_a_gpu_there_is_one_line(dataset: ClipDataset) -> None:
    with pytest.raises(BackendError, match=r"there is no NVIDIA driver|the NVIDIA driver shows no GPU") as caught:
        ClipLoader(dataset, 2, device="cuda")
    assert "\n" not in str(caught.value)


def test_pytorch_takes_the_batches(dataset: ClipDataset) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    loader = ClipLoader(dataset, 8, outputs=SMALL)

    batch = next(iter(torch.utils.data.DataLoader(loader, batch_size=None)))
    assert batch["input"].shape == (8, LENGTH, 3, 48, 48) and batch["input"].dtype == torch.float16
    assert batch.clips.shape == (8,) and len(batch.video) == 8
    with pytest.raises(ConfigError, match="num_workers: must be 0"):
        next(iter(torch.utils.data.DataLoader(loader, batch_size=None, num_workers=1)))
