"""Errors of the structure package."""

from collections.abc import Sequence

_SHOWN = 12  # nodes of a long cycle that the message shows


class StructureError(ValueError):
    """The input does not describe a valid label structure, or a structure does not support an operation.

    Examples
    --------
    >>> from arbora.structure import Hierarchy, StructureError
    >>> try:
    ...     Hierarchy.from_edges([("a", "a")])
    ... except StructureError as error:
    ...     print(error)
    node 'a' is given as its own parent (edge 0): remove that edge
    """


class CycleError(StructureError):
    """The edges of a hierarchy contain a cycle.

    Attributes
    ----------
    cycle : tuple
        Names along the cycle, the first repeated at the end.

    Examples
    --------
    >>> from arbora.structure import CycleError, Hierarchy
    >>> try:
    ...     Hierarchy.from_edges([("a", "b"), ("b", "c"), ("c", "a")])
    ... except CycleError as error:
    ...     print(error)
    cycle: a -> b -> c -> a
    """

    def __init__(self, cycle: Sequence[object]) -> None:
        self.cycle = tuple(cycle)
        shown = [str(name) for name in self.cycle]
        if len(shown) > _SHOWN:
            left_out = len(shown) - _SHOWN
            shown[_SHOWN // 2 : -_SHOWN // 2] = [f"... {left_out} more ..."]
        super().__init__("cycle: " + " -> ".join(shown))

    def __reduce__(self) -> tuple[type["CycleError"], tuple[tuple[object, ...]]]:
        return CycleError, (self.cycle,)


class UnknownLabelError(StructureError):
    """A label is not a node of the structure; the message suggests the most similar name.

    Examples
    --------
    >>> from arbora.structure import Hierarchy, UnknownLabelError
    >>> try:
    ...     Hierarchy.from_paths(["comp/graphics"]).encode(["comp/grafics"])
    ... except UnknownLabelError as error:
    ...     print(error)
    label 'comp/grafics' is not a node of the hierarchy (did you mean 'comp/graphics'?)
    """
