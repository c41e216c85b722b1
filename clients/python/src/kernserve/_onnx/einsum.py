"""Einsum as transposes, products and sums: of one operand, of two without a sum, and of two with a sum over one label."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from .ops import RULES, Call, Dims, Rule, Unsupported

Labelled = Tuple[str, str]  # a value, and a letter for each of its axes


class _Einsum:
    def __init__(self, call: Call) -> None:
        call.need_floats()
        self.call, self.lengths = call, {}  # type: Call, Dict[str, Any]
        equation = call.attributes["equation"]
        text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
        left, arrow, self.out = text.partition("->")
        self.terms = left.split(",")
        if not arrow or "." in text or len(self.terms) != len(call.inputs) or len(self.terms) > 2:
            raise Unsupported("its equation is '%s'" % text)
        for term, name in zip(self.terms, call.inputs):
            if len(set(term)) != len(term) or len(term) != len(call.shape(name)):
                raise Unsupported("its equation is '%s'" % text)
            self.lengths.update(zip(term, call.shape(name)))
        if not self.out or len(set(self.out)) != len(self.out) or not set(self.out) <= set("".join(self.terms)):
            raise Unsupported("its equation is '%s'" % text)

    def dims(self, labels: str) -> Dims:
        return [self.lengths.get(label, 1) for label in labels]

    def summed(self, value: Labelled, kept: str) -> Labelled:
        """Over the labels that nobody asks for."""
        name, labels = value
        gone = [place for place, label in enumerate(labels) if label not in kept]
        if not gone:
            return value
        left = "".join(label for label in labels if label in kept)
        if not left:
            raise Unsupported("an operand of it is summed whole")
        made = self.call.add("reduce", [name], op="sum", axis=gone, keepdims=False)
        self.call.dims[made] = self.dims(left)
        return made, left

    def ordered(self, value: Labelled, labels: str) -> str:
        """In that order; labels that it has not are axes of 1."""
        name, own = value
        order = [own.index(label) for label in labels if label in own]
        if order != sorted(order):
            name = self.call.add("transpose", [name], perm=order)
            self.call.dims[name] = self.dims("".join(own[axis] for axis in order))
        if len(own) == len(labels):
            return name
        wide, made = [self.lengths[label] if label in own else 1 for label in labels], self.call.chain.fresh(self.call.outputs[0])
        self.call.reshape(name, wide, made)
        return made

    def make(self) -> None:
        call, out = self.call, self.out
        if len(self.terms) == 1:
            name = self.ordered(self.summed((call.inputs[0], self.terms[0]), out), out)
            call.alias(name, call.outputs[0])
            return
        a, b = (self.summed((name, term), out + other) for name, term, other in zip(call.inputs, self.terms, self.terms[::-1]))
        inner = [label for label in a[1] if label in b[1] and label not in out]
        if not inner:
            call.add("map", [self.ordered(a, out), self.ordered(b, out)], call.outputs[0], op="mul")
            return
        batch = "".join(label for label in out if label in a[1] and label in b[1])
        rows, columns = ("".join(label for label in out if label in own and label not in batch) for own in (a[1], b[1]))
        if len(rows) < len(columns):
            a, b, rows, columns = b, a, columns, rows
        if len(inner) > 1 or len(columns) > 1:
            raise Unsupported("it is no product of matrices: '%s'" % ",".join(self.terms))
        alone, rows = rows[:-1], rows[-1:]  # of all but the last the other operand has one, as of a batch
        free = ["#", "%"]  # no label's
        made = batch + alone + (rows or free[0]) + (columns or free[1])
        left = self.ordered(a, batch + alone + (rows or free[0]) + inner[0])
        right = self.ordered(b, (batch + alone if batch else "") + inner[0] + (columns or free[1]))
        whole = call.add("matmul", [left, right])
        call.dims[whole] = self.dims(made)
        if not rows or not columns:
            made, target = "".join(label for label in made if label not in free), call.chain.fresh(call.outputs[0])
            call.reshape(whole, self.dims(made), target)
            whole = target
        call.alias(self.ordered((whole, made), out), call.outputs[0])


def _einsum(call: Call) -> None:
    _Einsum(call).make()


EINSUM_RULES: Dict[str, Rule] = {"Einsum": _einsum}
RULES.update(EINSUM_RULES)
