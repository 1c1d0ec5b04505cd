"""A session's runs that begin together load its network once."""

import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from networks import RED, make_model, model_of

from segmentation import Config
from segmentation.models.graph.fp16_cache import fp16_graph
from segmentation.models.model import Model
from segmentation.pipeline.planning.plan import Choice
from segmentation.pipeline.resources import Resources
from segmentation.stages.inference import Inference, InferenceResult


class Slow(Inference):
    """Takes its time to be loaded, and counts how often it is."""

    memory = "host"
    workers = 1
    loaded: ClassVar[list[Model]] = []
    may_go_on: ClassVar[threading.Event] = threading.Event()
    made_with: ClassVar[list[object]] = []

    def __init__(self, model: Model, config: Config, gpu: Any = None, preloaded: object = None) -> None:
        self.made_with.append(preloaded)

    @classmethod
    def preload(cls, model: Model, config: Config) -> object:
        cls.may_go_on.wait(240)
        cls.loaded.append(model)
        return f"loaded {len(cls.loaded)}"

    @staticmethod
    def describe(config: Config, info: Any = None) -> str:
        return "slow"

    def __call__(self, tensor: Any) -> InferenceResult:
        return InferenceResult(np.zeros((1, 1, 1), np.float32), None)


class Other(Slow):
    """Another implementation, which a run may be told to use."""


CHOICE: Choice[Inference] = Choice("slow", Slow, "")
CONFIG = Config(batch_size=2)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    Slow.loaded.clear()
    Slow.made_with.clear()
    Slow.may_go_on.clear()
    return model_of(make_model(tmp_path / "red.onnx", RED))


def test_runs_that_begin_together_load_it_once(model: Model) -> None:
    resources = Resources(CONFIG)
    preloaders = [resources.preloader(model, CONFIG, live=True) for _ in range(8)]
    for preloader in preloaders:
        assert preloader is not None
        preloader.begin(Slow)
    Slow.may_go_on.set()
    networks = [resources.network(CHOICE, model, CONFIG, preloader, None) for preloader in preloaders]
    assert len(Slow.loaded) == 1 and Slow.made_with == ["loaded 1"]
    assert len(networks) == 8
    assert resources.preloader(model, CONFIG, live=True) is None, "it is loaded"
    resources.close()


def test_what_was_loaded_serves_one_network_alone(model: Model) -> None:
    resources = Resources(CONFIG)
    Slow.may_go_on.set()
    preloader = resources.preloader(model, CONFIG, live=False)
    assert preloader is not None
    preloader.begin(Slow)
    preloader.begin(Other)
    resources.network(CHOICE, model, CONFIG, preloader, None)
    resources.limit_batch(1)  # frees the networks
    preloader.begin(Slow)
    resources.network(CHOICE, model, CONFIG, preloader, None)
    assert Slow.made_with[1] is None, "the second network has to load itself"
    assert preloader.result(Other) is not None, "each implementation has its own"
    resources.close()


def test_a_failure_to_load_is_each_run_s_and_the_next_tries_again(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = Resources(CONFIG)

    def fails(model: Model, config: Config) -> object:
        raise OSError("the file is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Slow, "preload", fails)
        preloader = resources.preloader(model, CONFIG, live=False)
        assert preloader is not None
        preloader.begin(Slow)
        with pytest.raises(OSError, match="gone"):
            resources.network(CHOICE, model, CONFIG, preloader, None)
    Slow.may_go_on.set()
    again = resources.preloader(model, CONFIG, live=False)
    assert again is not None and again is not preloader
    again.begin(Slow)
    resources.network(CHOICE, model, CONFIG, again, None)
    assert Slow.made_with == ["loaded 1"]
    resources.close()


def test_an_fp16_graph_is_converted_once(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMENTATION_ENGINES", str(tmp_path / "engines"))
    from segmentation.models.graph import fp16_cache

    made = []
    together = threading.Barrier(4)

    def converted(model: Model, batch: int) -> bytes:
        made.append(batch)
        time.sleep(0.2)  # while the others ask for it
        return b"graph"

    monkeypatch.setattr(fp16_cache, "_converted", converted)

    def convert() -> None:
        together.wait(240)
        fp16_graph(model, 2)

    threads = [threading.Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert made == [2]
