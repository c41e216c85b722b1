"""Lengths that only a request knows: words, what is computed with them, and the shapes that follow."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from .chain import Chain, Node
from .ops import UNKNOWN, Dims, Unsupported, is_unknown

Trial = Tuple[int, ...]  # what a length is in each of the trials
TRIALS = 3
# What may be computed with such lengths: moves, and polynomials, which are equal where they are in three trials. What turns at some length (a comparison,
# the least of two, a remainder) may not: three lengths do not say what it is for a fourth.
OF_SHAPES = ("Gather", "Concat", "Unsqueeze", "Squeeze", "Slice", "Identity", "Add", "Sub", "Mul", "Div", "Neg", "Equal", "Where", "Reshape",
             "ReduceProd", "ReduceSum", "Split")
OF_FIRST = ("Gather", "Unsqueeze", "Squeeze", "Slice", "Reshape", "ReduceProd", "ReduceSum", "Split")  # the other inputs are numbers
KEEP_SIGN = ("Add", "Mul", "Div", "ReduceProd", "ReduceSum")  # of what is not negative
PRIMES = [number for number in range(10007, 40000, 2) if all(number % factor for factor in range(3, 201, 2))]
LOST = "it computes with a length that only a request knows"


class Lengths:
    """Each word has lengths in three trials. Results that agree in all of them are known; others that agree with a word's are that word. In
    the last trial all words have one length: whether two of them are equal is not known."""

    def __init__(self) -> None:
        self.words: List[str] = []
        self.trials: Dict[str, Trial] = {}
        self.by_trial: Dict[Trial, str] = {}
        self.signed: Set[str] = set()  # words that may be negative

    def new(self, word: str, trial: Optional[Trial] = None) -> str:
        at = 2 * len(self.words)
        if at + 2 > len(PRIMES):
            raise Unsupported("it has more lengths than %d that only a request knows" % (len(PRIMES) // 2))
        self.words.append(word)
        self.trials[word] = trial or (PRIMES[at], PRIMES[at + 1] * 3, 2 * PRIMES[-1])
        self.by_trial.setdefault(self.trials[word], word)
        return word

    def fresh(self, trial: Optional[Trial] = None) -> str:
        return self.new("?%d" % len(self.words), trial)

    def trial(self, length: Any) -> Trial:
        """Of a length or a word."""
        if isinstance(length, int):
            return (length,) * TRIALS
        return self.trials[length if length in self.trials else self.new(length)]

    def length(self, trial: Sequence[int]) -> Any:
        if len(set(trial)) == 1:
            return trial[0]
        return self.by_trial.get(tuple(trial)) or self.fresh(tuple(trial))

    def code(self, length: Any) -> int:
        """As a number of a computed shape."""
        if isinstance(length, int):
            return length
        self.trial(length)
        return UNKNOWN - self.words.index(length)

    def decode(self, number: int) -> Any:
        return self.words[UNKNOWN - number] if is_unknown(number) else int(number)

    def evaluate(self, op: str, given: Sequence[np.ndarray], run: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]) -> List[np.ndarray]:
        self.check(op, given)
        known, signed = set(self.words), op not in KEEP_SIGN or any(self.is_signed(values) for values in given)
        results = [run([self.tried(values, number) for values in given]) for number in range(TRIALS)]
        made = [self.joined([np.asarray(values) for values in each]) for each in zip(*results)]
        self.signed |= set(self.words) - known if signed else set()
        return made

    def check(self, op: str, given: Sequence[np.ndarray]) -> None:
        """Whether three trials say what the result is for all lengths."""
        if op not in OF_SHAPES or op in OF_FIRST and any(map(has_unknown, given[1:])):
            raise Unsupported(LOST)
        if op == "Div" and any(np.any(b == 0) or np.any(a % b != 0) for a, b in ([self.tried(values, number) for values in given] for number in range(TRIALS))):
            raise Unsupported("it divides a length that only a request knows, and may leave a rest")
        if op == "Equal" and not all(map(self.tells, *(values.reshape(-1).tolist() for values in np.broadcast_arrays(*given)))):
            raise Unsupported("it compares a length that only a request knows")

    def tells(self, a: int, b: int) -> bool:
        """Whether it is known if two numbers of computed shapes are equal."""
        if is_unknown(a) and is_unknown(b):
            return a == b
        length, number = (a, b) if is_unknown(a) else (b, a)
        return not is_unknown(length) or number < 0 and self.decode(length) not in self.signed

    def is_signed(self, values: np.ndarray) -> bool:
        return values.dtype == np.int64 and any(self.decode(value) in self.signed if is_unknown(value) else value < 0 for value in values.reshape(-1).tolist())

    def tried(self, values: np.ndarray, number: int) -> np.ndarray:
        if values.dtype != np.int64:
            return values
        flat = [self.trial(self.decode(int(value)))[number] for value in values.reshape(-1)]
        return np.array(flat, np.int64).reshape(values.shape)

    def joined(self, values: Sequence[np.ndarray]) -> np.ndarray:
        first = values[0]
        if any(other.shape != first.shape for other in values) or (first.dtype != np.int64 and any(not np.array_equal(first, other) for other in values)):
            raise Unsupported(LOST)
        if first.dtype != np.int64:
            return first
        flat = [self.code(self.length([int(number) for number in trial])) for trial in zip(*(each.reshape(-1) for each in values))]
        return np.array(flat, np.int64).reshape(first.shape)

    # --- shapes of what nodes make -----------------------------------------------------------------------------------------

    def product(self, dims: Sequence[Any]) -> Trial:
        return tuple(math.prod(trial) for trial in zip(*(self.trial(length) for length in dims), (1,) * TRIALS))

    def reshaped(self, shape: Sequence[int], before: Dims) -> Dims:
        after: Dims = [before[place] if length == 0 else before[-2 - length] if length < -1 else length for place, length in enumerate(shape)]
        if -1 in shape:
            whole, rest = self.product(before), self.product([length for length in after if length != -1])
            at = shape.index(-1)
            after[at] = self.length([a // b for a, b in zip(whole, rest)]) if all(b and a % b == 0 for a, b in zip(whole, rest)) else None
        return after

    def dims_of(self, node: Node, given: Sequence[Dims]) -> Optional[Dims]:
        """None: not known here."""
        first, parameters = given[0], node.parameters
        if node.op == "reshape" and node.parameters["shape"].count(-1) < 2:
            return self.reshaped(parameters["shape"], first)
        if node.op == "transpose":
            return [first[axis] for axis in parameters["perm"]]
        if node.op == "map":
            return broadcast(given)
        if node.op in ("softmax", "norm", "scan"):
            return list(first)
        if node.op == "matmul":
            return _product_of(node, given)
        if node.op == "reduce" and isinstance(parameters["axis"], list):
            gone = [axis % len(first) for axis in parameters["axis"]]
            return [1 if place in gone else length for place, length in enumerate(first) if parameters["keepdims"] or place not in gone]
        if node.op == "concat":
            axis = parameters["axis"]
            length = self.length([sum(trial) for trial in zip(*(self.trial(dims[axis]) for dims in given))])
            return [*first[:axis], length, *first[axis % len(first) + 1:]]
        if node.op == "slice" and isinstance(first[parameters["axis"]], int):
            cut = range(*slice(parameters["start"], parameters.get("end"), parameters["step"] if "step" in parameters else 1).indices(int(first[parameters["axis"]] or 0)))
            return [len(cut) if place == parameters["axis"] else length for place, length in enumerate(first)]
        if node.op == "expand":
            return broadcast([first, [1 if length == 0 else length for length in parameters["shape"]]])
        if node.op == "gather" and not parameters.get("kind"):
            axis = parameters.get("axis") or 0
            return [*first[:axis], *given[1], *first[axis + 1:]]
        return None

    def note(self, chain: Chain, nodes: Sequence[Node], dims: Dict[str, Dims]) -> None:
        """What follows for the nodes' results, where it says more than is known of them."""
        for node in nodes:
            given = [dims.get(name) for name in node.inputs if name]
            known = [shape for shape in given if shape is not None]
            found = self.dims_of(node, [self.named(shape) for shape in known]) if len(known) == len(given) and known else None
            for name in node.outputs[:1] if found is not None else []:
                assert found is not None
                before = dims.get(name)
                if before is None or len(before) != len(found):
                    dims[name] = found
                else:
                    dims[name] = [old if isinstance(old, int) or new is None else new for old, new in zip(before, found)]

    def named(self, dims: Dims) -> Dims:
        """A length without a word gets one, which stays with it."""
        for place, length in enumerate(dims):
            if length is None or length == "":
                dims[place] = self.fresh()
        return dims


def _product_of(node: Node, given: Sequence[Dims]) -> Optional[Dims]:
    a, b = (list(dims) for dims in given[:2])
    if min(len(a), len(b)) < 2:
        return None
    rows = a[-1 if node.parameters.get("transpose_a") else -2]
    columns = b[-2 if node.parameters.get("transpose_b") else -1]
    return [*broadcast([a[:-2], b[:-2]]), rows, columns]


def broadcast(shapes: Sequence[Sequence[Any]]) -> List[Any]:
    rank = max(map(len, shapes))
    out: List[Any] = [1] * rank
    for shape in shapes:
        for place, length in enumerate(shape, rank - len(shape)):
            if out[place] == 1 or isinstance(length, int) and length != 1:
                out[place] = length
    return out


def has_unknown(values: np.ndarray) -> bool:
    return values.dtype == np.int64 and any(map(is_unknown, values.reshape(-1).tolist()))


def is_word(length: Any) -> bool:
    """A word that the graph has, and no name of ours for a length without one."""
    return isinstance(length, str) and bool(length) and not length.startswith("?")
