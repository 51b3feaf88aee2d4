"""Kinds of mutants: six changes, most of them cosmic-ray's own."""

import ast
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import cosmic_ray.plugins
import parso.python.tree
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.number_replacer import NumberReplacer
from cosmic_ray.operators.operator import Example, Operator
from parso.tree import NodeOrLeaf

MAX_INTEGER = 16
"""A larger one is a bound or a buffer, where one more or less seldom means anything."""

Position = tuple[tuple[int, int], tuple[int, int]]


class DropCall(Operator):
    """Leaves out a call that stands alone as a statement, awaited or not."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        """Yields the statement, if it is a call."""
        if node.type == "simple_stmt" and _is_call(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        """Puts `pass` in its place."""
        call = node.children[0]
        node.children[0] = parso.python.tree.Keyword("pass", call.start_pos, call.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Returns one, as cosmic-ray wants it of every operator."""
        return (Example("forget(it)", "pass"),)


class ReturnNothing(Operator):
    """Returns None instead of a value."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        """Yields the value."""
        if node.type == "return_stmt":
            yield node.children[1].start_pos, node.children[1].end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        """Puts None in its place."""
        node.children[1] = parso.python.tree.Keyword("None", node.children[1].start_pos, " ")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Returns one."""
        return (Example("return it", "return None"),)


class SmallInteger(NumberReplacer):  # type: ignore[misc]
    """Makes a small integer one larger or one smaller."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        """Yields each position twice: one for more, one for less."""
        if node.type == "number" and node.value.isdecimal() and int(node.value) <= MAX_INTEGER:
            yield from super().mutation_positions(node)


KINDS: Mapping[str, tuple[str, ...]] = {
    "comparison": tuple(
        f"core/ReplaceComparisonOperator_{pair}"
        for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is")
    ),
    "boolean": (
        "core/ReplaceAndWithOr",
        "core/ReplaceOrWithAnd",
        "core/ReplaceTrueWithFalse",
        "core/ReplaceFalseWithTrue",
        "core/AddNot",
        "core/ReplaceUnaryOperator_Delete_Not",
    ),
    "dropped call": ("turnwire/DropCall",),
    "return": ("turnwire/ReturnNothing",),
    "arithmetic": tuple(
        f"core/ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul")
    ),
    "small integer": ("turnwire/SmallInteger",),
}
"""The names of the operators by kind."""

cosmic_ray.plugins.OPERATOR_PROVIDERS["turnwire"] = {
    one.__name__: one for one in (DropCall, ReturnNothing, SmallInteger)
}


def operator(name: str) -> Any:
    """Returns the operator of a name."""
    return cosmic_ray.plugins.get_operator(name)()


def positions(source: str, name: str) -> list[Position]:
    """Returns where an operator can change a module; the index is the occurrence."""
    made = operator(name)
    return [position for node in _nodes(source) for position in made.mutation_positions(node)]


def mutated(source: str, name: str, occurrence: int) -> str | None:
    """Returns the changed module; None when the change says nothing else, or is no Python."""
    changed = mutate_code(source, operator(name), occurrence)
    if changed is None:
        return None
    try:
        return changed if _meaning(changed) != _meaning(source) else None
    except SyntaxError:
        return None


@functools.lru_cache(maxsize=1024)
def _nodes(source: str) -> tuple[NodeOrLeaf, ...]:
    """Returns the nodes of a module, which nobody changes: to parse all modules takes longer than to draw from them."""
    return tuple(ast_nodes(get_ast(source)))


def _is_call(node: NodeOrLeaf) -> bool:
    if node.type not in ("atom_expr", "power"):
        return False
    last = node.children[-1]
    return bool(last.type == "trailer" and last.children[0].value == "(")


class _WithoutAnnotations(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        """Only how arguments are given differs between `*` and `/` in a signature."""
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [*node.defaults, *(one for one in node.kw_defaults if one is not None)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node


def _meaning(source: str) -> str:
    """Returns a module without what it says of types."""
    return ast.dump(_WithoutAnnotations().visit(ast.parse(source)))
