"""Clips on a GPU against those on the CPU: the kernel, and the loader. On the host both run with stand-ins."""

import gc
import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from av.video.frame import VideoFrame
from drawn import ORIENTATIONS
from numbered import all_frames, damage, numbered
from numpy.typing import NDArray
from paths import ROOT
from videos import planes

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

import torch
from host_clips import stand_in
from host_nvdec import Session, Surface

from segmentation.clips import Batch, ClipDataset, ClipLoader, Output, host_clips
from segmentation.clips.index import Coding, VideoIndex
from segmentation.clips.output import Augmentation, Chain
from segmentation.errors import InputError, LacksEngine
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.media.opening.stream_properties import color_of

LENGTH = 4
SIDES = ["host", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "host":
        stand_in(monkeypatch)
    yield str(request.param)
    gc.collect()  # errors that tests have caught hold loaders, with their sessions


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in's module, for tests of what a GPU doesn't show."""
    yield stand_in(monkeypatch)
    gc.collect()


# The kernel

OUTPUTS = {
    "whole": Output(dtype="uint8"),
    "small": Output(size=(64, 96), dtype="uint8"),
    "crop": Output(size=(90, 64), crop="random", flip=True, dtype="uint8"),
    "odd": Output(size=(71, 93), crop="random", scale=140, flip=True, dtype="uint8"),
    "larger": Output(size=(400, 700), crop="center", dtype="uint8"),
    "half": Output(size=(60, 60), crop="random", flip=True, dtype="float16", mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)),
    "float": Output(size=(60, 60), crop="random", dtype="float32", layout="HWCNT", mean=(0.5, 0.5, 0.5)),
    "ycbcr": Output(size=(64, 96), dtype="uint8", color="ycbcr", layout="NCTWH"),
}


class DeviceSurface(Surface):
    """A stand-in's surface in the memory of a GPU."""

    def __init__(self, frame: VideoFrame) -> None:
        super().__init__(frame)
        self._there = torch.from_numpy(self._samples).cuda()
        torch.cuda.synchronize()

    def GetPtrToPlane(self, index: int) -> int:
        return self._there.data_ptr()


def check(
    side: str, frames: list[VideoFrame], output: Output, draw: Augmentation, shown_as: Orientation = UPRIGHT
) -> None:
    """Makes a batch of two clips of two frames, and compares the second clip with the CPU's."""
    frame = frames[0]
    size = shown_as.size(frame.height, frame.width)
    bits = frame.format.components[0].bits
    none = np.empty(0, np.int64)
    coding = Coding("hevc", frame.format.name, False, color_of(frame))
    index = VideoIndex("a.mp4", 0, frame.time_base, shown_as, size, none, none, none, none.astype(bool), coding)
    maker = host_clips.loaded("segmentation.clips.cuda", "CudaClipBuilder")({"a": output}, 0, 1)
    surfaces = [(Surface if side == "host" else DeviceSurface)(one) for one in frames]
    with maker.working():
        clips = [maker.begin(index, draw, 3) for _ in range(2)]
        for clip in clips:
            clip.sample()["a"].array.fill_(77)
        torch.cuda.synchronize() if side == "cuda" else None
        for surface in surfaces:
            clips[1].add(surface)
    made = maker.handed_over(maker.batch([clip.sample()["a"] for clip in clips], output)).cpu().numpy()
    assert made.flags.c_contiguous and made.dtype == output.dtype
    shown = made.transpose([output.layout.index(letter) for letter in "NTCHW"])
    assert (shown[0] == 77).all() and (shown[1, 2] == 77).all(), "it has written elsewhere"
    chain = Chain(output, draw, size, shown_as)
    same(output, shown[1, :2], output.numbers([chain(one) for one in frames]), bits)


def same(output: Output, found: NDArray[Any], true: NDArray[Any], bits: int = 8) -> None:
    """Frames (T, C, H, W) of a GPU and of the CPU differ in rounding alone: by a level of 255, mostly by none."""
    level = 1 if output.dtype == "uint8" else 1 / 255 / min(output.std)
    error = abs(found.astype(np.float64) - true) / level
    most = 1.1 if output.dtype == "float16" else 1.01  # which has 10 bits
    # FFmpeg's sums of 10 bits have rounding errors of their own, where pictures are enlarged.
    share, worst = (0, most) if bits == 8 else (1e-3, 2.2)
    assert found.shape == true.shape and error.mean() < 0.25
    assert (error > most).mean() <= share and error.max() <= worst, (error.max(), (error > most).mean())


@pytest.fixture(scope="module")
def sample() -> list[VideoFrame]:
    return all_frames(ROOT / "samples" / "astronaut.mp4")[:2]


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
@pytest.mark.parametrize("name", OUTPUTS)
def test_the_kernel_does_as_the_cpu_does(side: str, name: str, shown: Orientation, sample: list[VideoFrame]) -> None:
    for draw in (Augmentation(0.31, 0.77, False), Augmentation(0.9, 0.1, True)):
        check(side, sample, OUTPUTS[name], draw, shown)


@pytest.mark.parametrize("pix_fmt", ["yuv420p10le", "yuv444p", "yuv444p10le"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_other_layouts(side: str, name: str, pix_fmt: str, sample: list[VideoFrame]) -> None:
    frames = [frame.reformat(format=pix_fmt) for frame in sample]
    check(side, frames, OUTPUTS[name], Augmentation(0.4, 0.6, True))


def test_another_size_on_the_way(host: Any, sample: list[VideoFrame]) -> None:
    surface = Surface(sample[0].reformat(width=320, height=180))
    none = np.empty(0, np.int64)
    coding = Coding("vp9", "yuv420p", False, color_of(sample[0]))
    index = VideoIndex(
        "a.webm", 0, sample[0].time_base, UPRIGHT, (360, 640), none, none, none, none.astype(bool), coding
    )
    clip = host.CudaClipBuilder(OUTPUTS, 0, 1).begin(index, Augmentation(0, 0, False), 2)
    with pytest.raises(InputError, match=r'a\.webm: the picture\'s size changes on the way; use device="cpu"'):
        clip.add(surface)


# The loader

TWO = {
    "input": Output(size=(96, 96), crop="random", flip=True, dtype="float16", mean=(0.4,) * 3, std=(0.3,) * 3),
    "whole": Output(dtype="uint8", color="ycbcr", layout="NTHWC"),
}
CODECS = {
    "a.mp4": ("libx264", {"bf": "2", "g": "12"}),
    "b.mkv": ("libx265", {"x265-params": "log-level=none:open-gop=1:keyint=10:min-keyint=10:bframes=3"}),
    "c.webm": ("libvpx-vp9", {"g": "16", "lag-in-frames": "8", "b": "200k"}),
    "d.ts": ("libx264", {"bf": "3", "g": "15", "b_strategy": "0"}),
    "e.webm": ("libvpx", {"g": "20", "lag-in-frames": "8", "auto-alt-ref": "1"}),
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for place, (name, (codec, options)) in enumerate(CODECS.items()):
        numbered(folder / name, 40 + 8 * place, codec, options, size=(192, 160))
    return folder


@pytest.fixture
def dataset(videos: Path) -> ClipDataset:
    return ClipDataset(videos, length=LENGTH, labels=lambda *about: about)


def copied(batch: Batch) -> dict[str, NDArray[Any]]:
    return {
        name: np.asarray(array.cpu() if isinstance(array, torch.Tensor) else array) for name, array in batch.items()
    }


def alike(on_gpu: list[Batch], on_cpu: list[Batch], outputs: dict[str, Output]) -> None:
    """Both have the same clips; their pictures differ in rounding alone, and their masks in nothing."""
    assert len(on_gpu) == len(on_cpu) > 0
    for gpu, cpu in zip(on_gpu, on_cpu, strict=True):
        assert gpu.clips.tolist() == cpu.clips.tolist() and gpu.windows == cpu.windows and gpu.labels == cpu.labels
        assert gpu.video == cpu.video and np.array_equal(gpu.pts, cpu.pts) and gpu.keys() == cpu.keys()
        for name, made in copied(gpu).items():
            assert made.dtype == cpu[name].dtype and isinstance(gpu[name], torch.Tensor)
            if name == "masks":
                assert np.array_equal(made, cpu[name])
                continue
            back = [outputs[name].layout.index(letter) for letter in "NTCHW"]
            for found, true in zip(made.transpose(back), np.asarray(cpu[name]).transpose(back), strict=True):
                same(outputs[name], found, true)


def equal(first: list[Batch], second: list[Batch]) -> None:
    """Both have the same clips, bit for bit."""
    assert [batch.clips.tolist() for batch in first] == [batch.clips.tolist() for batch in second] != []
    for one, other in zip(first, second, strict=True):
        there = copied(other)
        assert all(np.array_equal(made, there[name]) for name, made in copied(one).items())


@pytest.mark.parametrize("shuffle", ["pool", "full", False])
def test_batches_are_those_of_the_cpu(side: str, dataset: ClipDataset, shuffle: Any) -> None:
    options: Any = {"outputs": TWO, "shuffle": shuffle, "window": 2, "seed": 5}
    gpu, cpu = (ClipLoader(dataset, 6, device=device, **options) for device in ("cuda", "cpu"))
    alike([*gpu, *islice(gpu, 2)], [*cpu, *islice(cpu, 2)], TWO)
    one = gpu.sample(7, epoch=3)
    same(TWO["input"], one["input"].cpu().numpy(), np.asarray(cpu.sample(7, epoch=3)["input"]))


def test_clips_that_share_frames(side: str, videos: Path) -> None:
    dataset = ClipDataset(videos / "a.mp4", length=3, stride=2, step=1)
    gpu, cpu = (ClipLoader(dataset, 5, outputs=TWO, window=2, device=device) for device in ("cuda", "cpu"))
    alike(list(gpu), list(cpu), TWO)


def test_masks_come_along(side: str, tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    numbered(tmp_path / "a.mp4", 24, size=(192, 160))
    numbered(tmp_path / "masks" / "a.segmented.masks.mkv", 24, "ffv1", size=(96, 80), pix_fmt="gray")
    dataset = ClipDataset(tmp_path / "a.mp4", length=LENGTH, masks=tmp_path / "masks")
    gpu, cpu = (ClipLoader(dataset, 3, outputs=TWO, device=device) for device in ("cuda", "cpu"))
    alike(list(gpu), list(cpu), TWO)


def test_threads_change_nothing(side: str, dataset: ClipDataset) -> None:
    one, many = (ClipLoader(dataset, 8, outputs=TWO, workers=n, ahead=n, device="cuda") for n in (1, 4))
    equal(list(one), list(many))


def test_a_loader_goes_on_where_another_stood(side: str, dataset: ClipDataset) -> None:
    def loader(device: str) -> ClipLoader:
        return ClipLoader(dataset, 8, outputs=TWO, window=2, device=device)

    whole_loader, left, on_cpu = loader("cuda"), loader("cuda"), loader("cpu")
    whole = [*whole_loader, *whole_loader]  # two epochs
    for _ in islice(left, 3):
        pass
    for _ in islice(on_cpu, 3):
        pass
    assert left.state_dict() == on_cpu.state_dict()
    resumed = loader("cuda")
    resumed.load_state_dict(on_cpu.state_dict())
    equal([*resumed, *resumed], whole[3:])


@pytest.mark.parametrize("on_error", ["raise", "skip", "repeat"])
def test_damage(side: str, tmp_path: Path, on_error: Any, caplog: pytest.LogCaptureFixture) -> None:
    options = {"g": "8", "bf": "0"}
    dataset = ClipDataset(path := numbered(tmp_path / "a.mp4", 48, options=options, size=(192, 160)), length=8)
    damage(path, 9)
    gpu, cpu = (
        ClipLoader(dataset, 3, outputs=TWO, shuffle=False, on_error=on_error, device=device)
        for device in ("cuda", "cpu")
    )
    if on_error == "raise":
        with pytest.raises(InputError, match="frame 9 can't be decoded"):
            list(gpu)
        return
    with caplog.at_level(logging.ERROR):
        alike(list(gpu), list(cpu), TWO)
    assert gpu.damaged == cpu.damaged and list(gpu.damaged) == [1]


def test_damage_that_nvdec_conceals(host: Any, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library names damage in a log that all sessions share; FFmpeg then tells whose it is."""
    dataset = ClipDataset(videos / "a.mp4", length=8)
    named: list[None] = []
    asked: list[list[int]] = []
    inner = Session.Decode

    def concealing(self: Session, data: Any) -> list[Surface]:
        if data.bsl and data.pts == dataset.videos[0].pts[9]:
            named.append(None)
        return inner(self, data)

    def decoded(index: VideoIndex, numbers: list[int]) -> Iterator[None]:
        asked.append(list(numbers))
        if 9 in numbers:
            raise InputError(f"{index.path}: frame 9 can't be decoded")
        yield None

    monkeypatch.setattr(Session, "Decode", concealing)
    monkeypatch.setattr(host, "damage_log", lambda: SimpleNamespace(count=lambda: len(named)))
    monkeypatch.setattr(host, "decoded", decoded)
    loader = ClipLoader(dataset, 5, outputs=TWO, shuffle=False, on_error="skip", device="cuda", workers=1)
    assert [clip for batch in loader for clip in batch.clips.tolist()] == [0, 2, 3, 4]
    assert list(loader.damaged) == [1] and "frame 9 can't be decoded" in loader.damaged[1]
    assert asked == [list(range(40)), list(range(8, 16))]


def test_damage_of_another_video(host: Any, dataset: ClipDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is that of all sessions."""
    named = iter(range(1000))
    monkeypatch.setattr(host, "damage_log", lambda: SimpleNamespace(count=lambda: next(named)))
    loader = ClipLoader(dataset, 8, outputs=TWO, device="cuda")
    assert sum(len(batch.clips) for batch in loader) == len(dataset) // 8 * 8 and not loader.damaged


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times of the packets that sessions got."""
    found: list[int] = []
    inner = Session.Decode

    def watched(self: Session, data: Any) -> list[Surface]:
        if data.bsl:
            found.append(data.pts)
        return inner(self, data)

    monkeypatch.setattr(Session, "Decode", watched)
    return found


def test_only_what_a_clip_needs_is_decoded(host: Any, videos: Path, fed: list[int]) -> None:
    dataset = ClipDataset(videos / "d.ts", length=LENGTH)
    index, numbers = dataset.videos[0], dataset.numbers(3)  # 12 to 15: the next keyframe begins at 15
    ClipLoader(dataset, 1, outputs=TWO, device="cuda").sample(3)
    wanted = set(index.pts[list(numbers)].tolist())
    before = set(index.pts[(index.pts < min(wanted)) & ~index.spare].tolist())
    assert index.spare[: numbers[0]].any(), "there is nothing to leave out"
    assert wanted | before == set(fed) and len(set(fed)) == len(fed)


def test_sessions_are_kept_and_end_with_the_loader(host: Any, dataset: ClipDataset) -> None:
    gc.collect()
    made, alive = Session.made, Session.alive
    loader = ClipLoader(dataset, 8, outputs={"input": TWO["input"]}, workers=1, device="cuda")
    for _ in range(2):
        list(loader)
    assert Session.made - made == Session.alive - alive == len(CODECS)
    for _ in islice(loader, 1):  # left on the way
        pass
    assert Session.alive - alive == len(CODECS)
    del loader
    gc.collect()
    assert Session.alive == alive


def test_videos_stay_open_until_the_loader_ends(host: Any, dataset: ClipDataset, videos: Path) -> None:
    def open_files() -> int:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sum(str(link.readlink()).startswith(str(videos)) for link in links)

    gc.collect()
    assert open_files() == 0
    loader = ClipLoader(dataset, 8, outputs=TWO, workers=2, device="cuda")
    for _ in range(2):
        list(loader)
    assert len(CODECS) <= open_files() <= 2 * len(CODECS)
    del loader
    gc.collect()
    assert open_files() == 0


def test_a_video_that_is_replaced_on_the_way(host: Any, tmp_path: Path) -> None:
    """Its keyframes are elsewhere now. What FFmpeg says of it counts, as on the CPU."""
    path = numbered(tmp_path / "a.mp4", 48, options={"g": "8", "bf": "0"}, size=(192, 160))
    dataset = ClipDataset(path, length=LENGTH)
    gpu, cpu = (
        ClipLoader(dataset, 2, outputs=TWO, shuffle="full", on_error="skip", device=device)
        for device in ("cuda", "cpu")
    )
    alike(list(gpu), list(cpu), TWO)
    numbered(tmp_path / "b.mp4", 40, options={"g": "12", "bf": "0"}, size=(192, 160)).replace(path)
    alike(list(gpu), list(cpu), TWO)
    assert gpu.damaged == cpu.damaged and 0 < len(gpu.damaged) < len(dataset)


def test_a_session_that_failed_serves_no_other_clip(host: Any, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold frames, which would come out as those of the next clip. FFmpeg finds no fault in them."""
    dataset = ClipDataset(videos / "a.mp4", length=8)
    inner = Session.Decode

    def failing(self: Session, data: Any) -> list[Surface]:
        if data.bsl and data.pts == dataset.videos[0].pts[9]:
            raise ValueError("no surface is free")
        return inner(self, data)

    monkeypatch.setattr(Session, "Decode", failing)
    gc.collect()
    made, alive = Session.made, Session.alive
    loader = ClipLoader(dataset, 5, outputs=TWO, shuffle=False, on_error="skip", device="cuda", workers=1)
    clips = [clip for batch in loader for clip in batch.clips.tolist()]
    assert 1 not in clips and set(loader.damaged) | set(clips) == set(range(5))
    assert 'NVDEC can\'t decode it (no surface is free); use device="cpu"' in loader.damaged[1]
    assert Session.made - made == 2 + len(loader.damaged)  # one failed with the whole run, and one with each clip
    assert Session.alive - alive == 1


@pytest.mark.gpu
@pytest.mark.parametrize("freed", [False, True])
@pytest.mark.parametrize("own_stream", [False, True])
def test_batches_that_are_read_late_are_right(dataset: ClipDataset, own_stream: bool, freed: bool) -> None:
    """The reader's stream is busy for long, while the loader decodes on and would use memory again."""
    loader = ClipLoader(dataset, 4, outputs=TWO, device="cuda")
    true = list(ClipLoader(dataset, 4, outputs=TWO))
    work = torch.zeros((8192, 8192), device="cuda")
    with torch.cuda.stream(torch.cuda.Stream() if own_stream else torch.cuda.current_stream()):
        found: list[Batch] = []
        for batch in loader:
            for _ in range(10):
                work = work @ work
            if freed:  # before the stream has read it
                batch |= {name: array.clone() for name, array in batch.items()}  # type: ignore[attr-defined]
            found.append(batch)
    torch.cuda.synchronize()
    alike(found, true, TWO)


@pytest.mark.gpu
@pytest.mark.whole_card
def test_memory_stays_level_from_epoch_to_epoch(dataset: ClipDataset) -> None:
    loader = ClipLoader(dataset, 8, outputs=TWO, window=2, device="cuda")
    used, free = [], []
    for _ in range(6):
        for _ in loader:
            pass
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # of blocks, too, that a stream was reading at the end
        used.append(torch.cuda.memory_allocated())
        free.append(torch.cuda.mem_get_info()[0])
    # A thread of the loader may hold its last block when it is asked. What leaks is missing ever after.
    assert min(used[3:]) <= min(used[1:3]), used
    assert free[2] - free[-1] < 64 << 20, free  # of the decoders too


@pytest.mark.gpu
def test_the_current_device_stays(dataset: ClipDataset) -> None:
    last = torch.cuda.device_count() - 1
    before = torch.cuda.current_device()
    batch = next(iter(ClipLoader(dataset, 8, outputs=TWO, device=f"cuda:{last}")))
    assert batch["input"].device == torch.device("cuda", last)
    assert torch.cuda.current_device() == before


@pytest.mark.parametrize(
    ("name", "codec", "options", "reason"),
    [
        ("a.mp4", "libx264", {"pix_fmt": "yuv420p10le"}, "NVDEC has no decoder for h264 yuv420p10le of 160x96"),
        ("a.mkv", "ffv1", {}, "NVDEC has no decoder for ffv1 yuv420p of 160x96"),
        ("a.avi", "mpeg4", {}, "its packets don't tell for certain which frames they hold"),
    ],
)
def test_videos_that_are_not_for_nvdec(
    host: Any, tmp_path: Path, name: str, codec: str, options: dict[str, Any], reason: str
) -> None:
    path = numbered(tmp_path / name, 24, codec, **options)
    with pytest.raises(LacksEngine) as caught:
        ClipLoader(ClipDataset(path, length=LENGTH), 2, device="cuda")
    remedy = 'use device="cpu", or transcode it (segmentation-clips transcode)'
    assert str(caught.value) == f"{path}: {reason}; {remedy}"


REAL = ["h265_10bits.mp4", "hlg10-color-test.mp4", "sample_fragmented.mp4", "sample_h264.ts", "video_90.mov"]
MORE = [
    "04_coffee.mp4", "05_default_juggle.mp4", "bbb_1920x1080_60fps_vp8.webm", "bottle-detection.mp4",
    "bt709_full_range.mp4", "dog_eating_854132.mp4", "edit_list_positive_shift.mp4", "nasa_13013.mp4",
    "portrait_4k60.mp4", "roadtrip-vp92-10bit.webm", "sample_with_srt.mkv", "selfie_segmentation_web.mp4",
]  # fmt: skip


@pytest.mark.parametrize("name", [*REAL, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_real_videos(side: str, corpus: Path, name: str) -> None:
    """Luma is FFmpeg's bit for bit, and crops are those of the CPU."""
    dataset = ClipDataset(corpus / name, length=2, step=7)
    index = dataset.videos[0]
    bits = 10 if "10" in index.coding.pix_fmt else 8  # type: ignore[union-attr]
    outputs = {
        "small": Output(size=(90, 120), crop="random", flip=True, dtype="uint8"),
        "whole": Output(dtype="uint8", color="ycbcr"),
    }
    gpu = ClipLoader(dataset, min(3, len(dataset)), outputs=outputs, shuffle="full", device="cuda")
    cpu = ClipLoader(dataset, 1, outputs=outputs)
    batch = next(iter(gpu))
    found = copied(batch)
    for place, clip in enumerate(batch.clips.tolist()):
        same(outputs["small"], found["small"][place], np.asarray(cpu.sample(clip)["small"]), bits)
        for picture, frame in zip(found["whole"][place], dataset[clip].frames, strict=True):
            luma = index.orientation.upright(planes(frame)[0])
            assert np.array_equal(picture[0], luma if bits == 8 else (luma + 2) // 4)
