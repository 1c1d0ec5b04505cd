"""The table of options: one row each, of which the checks, the command line, its help and the documents are made."""

from dataclasses import Field, dataclass, field, fields
from enum import Flag, auto
from fractions import Fraction
from functools import cache
from types import NoneType
from typing import Literal, TypeAlias, TypeVar, get_args, get_origin

from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.value_types import fitted, option_type

Group: TypeAlias = Literal[
    "command",
    "several inputs",
    "effect and mask",
    "tracking",
    "input",
    "live sources",
    "output",
    "model",
    "stages and device",
]
Default = TypeVar("Default")
GROUPS: tuple[Group, ...] = get_args(Group)


class Of(Flag):
    """The calls that take an option, and the parts of a run without which it means nothing."""

    NOTHING = 0
    RUN = auto()  # a keyword of `Segmenter.run()`: may differ from file to file
    FRAMES = auto()  # a keyword of `Segmenter.frames()`
    PICTURE = auto()  # a keyword of `Segmenter.apply()`
    OUTPUT = auto()  # of the stages after the masks, which a run without a video lacks
    NETWORK = auto()  # of the network, in whose place saved masks come
    VIDEO = auto()  # of videos alone: a picture is written without it
    SHOWING = auto()  # may show something of what `anonymize` covers
    MEANING = auto()  # of what a network's numbers mean: `segmentation-build` takes it too


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: a row of the table."""

    name: str  # as a keyword; the command line has `--name`, with dashes
    type: object = str  # the annotation: a key of `value_types`, or a `Literal`, each or `None`
    default: object = None
    group: Group
    help: str  # what the option does, in one line of plain text
    unit: str = ""  # "seconds" may be written as [HH:]MM:SS too
    low: float | None = None  # the range of each number, ends included
    high: float | None = None
    above: float | None = None  # likewise, excluded
    below: float | None = None
    zero: str = ""  # the meaning of 0, where the range begins there
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # that completion proposes where other values are allowed too
    by_default: str = ""  # the default, where its value does not show it
    flags: tuple[str, ...] = ()  # on the command line, unless `--name` is all
    metavar: str = ""
    repeatable: bool = False  # given several times, a value each
    everyday: bool = False  # shown by `--help`, not by `--help-all` alone
    of: Of = Of.NOTHING
    link: str = ""  # the page and the heading with more, from docs/

    @property
    def title(self) -> str:
        """Returns the name in messages."""
        return self.name.rstrip("_").replace("_", " ")

    @property
    def spelled(self) -> tuple[str, ...]:
        """Returns the flags on the command line."""
        return self.flags or (f"--{self.name.replace('_', '-')}",)

    @property
    def flag(self) -> str:
        """Returns the flag that messages name."""
        return self.spelled[-1]

    @property
    def switches(self) -> bool:
        """Returns whether each flag stands for one of the choices, and takes no value."""
        return bool(self.choices) and set(self.spelled) <= {f"--{choice}" for choice in self.choices}

    @property
    def span(self) -> str:
        """Returns the range with its unit, or "" if any number is one of the option's values."""
        if self.above is not None:
            high = self.below if self.high is None else self.high
            both = self.below is not None
            text = f"between {self.above:,} and {high:,}, both excluded" if both else f"above {self.above:,}"
            text += "" if both or high is None else f", up to {high:,}"
        elif self.low is not None:
            least = f"{self.low:,}{f' ({self.zero})' if self.zero else ''}"
            text = f"{least} or more" if self.high is None else f"{least} to {self.high:,}"
        else:
            return ""
        return " ".join(filter(None, [text, self.unit])) + "".join(f", or {word}" for word in words_of(self.type))

    @property
    def shown_default(self) -> str:
        """Returns the default as the help and the documents show it."""
        if self.by_default:
            return self.by_default
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if self.default is None or self.default == ():
            return "none"
        return f"{self.default:.12g}" if isinstance(self.default, float) else str(self.default)

    def checked(self, value: object) -> object:
        """Returns `value` in the option's type. Raises `ConfigError` if it is of another type or out of range."""
        if type(value) is type(self.default) and value == self.default:
            return value  # as it is, see `effect.Unasked`
        kind = option_type(self.type)
        if kind.what == "text" and self.choices:
            kind = kind._replace(what=f"text, one of {', '.join(self.choices)}")
        value = fitted(self.title, value, kind)
        if value is None and self.default is None:
            return value
        if value == () and self.default is None:  # such as of an empty variable; kept classes would be none
            raise ConfigError(f"{self.title} {value}: must have one at least")
        for item in value if isinstance(value, tuple) else (value,):
            if self.choices and item not in self.choices:
                known = ", ".join(self.choices)
                proposal = did_you_mean(str(item), self.choices)
                raise ConfigError(f"{self.title} {item!r} is unknown: choose {known}{proposal}")
            if isinstance(item, int | float | Fraction) and not self._within(item):
                raise ConfigError(f"{self.title} {value}: must be {self.span}")
        return value

    def _within(self, number: float | Fraction) -> bool:
        """Returns whether a number is in the range; NaN is in none."""
        return (
            (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


def option(group: Group, default: Default, help: str, **facts: object) -> Default:  # argparse's word
    """Returns the field of a dataclass that is a row. `facts` are those of `Option` that the field lacks."""
    return field(default=default, metadata={"option": {"group": group, "help": help, **facts}})


@cache
def rows_of(table: type) -> dict[str, Option]:
    """Returns the rows of a dataclass by name. The choices of a `Literal` are those of the type."""
    return {each.name: _row(each) for each in fields(table) if each.metadata}


def _row(each: Field[object]) -> Option:
    choices = () if int in get_args(each.type) else words_of(each.type)  # a number, or a word in its place
    facts = {"choices": choices} | each.metadata["option"]
    return Option(name=each.name, type=each.type, default=each.default, **facts)


def words_of(annotation: object) -> tuple[str, ...]:
    """Returns the texts of a `Literal`, which a union may hold."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(word for part in get_args(annotation) if part is not NoneType for word in words_of(part))
