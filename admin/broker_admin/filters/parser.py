"""The parser of filters: one walk over the tokens, which makes a closure of each expression as it goes.

Precedence, from the loosest: ``? :``, ``||``, ``&&``, relations and ``in``, ``+ -``, ``* / %``, ``! -``, and member
access. Chains of one level are one closure with a loop in it, so that only nesting makes the evaluation deep; it is
bounded, for the parser as well.

Source: the grammar of CEL's language definition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs

from broker_admin.filters import operations
from broker_admin.filters.errors import EvaluationError, FilterSyntaxError
from broker_admin.filters.lexer import Token, TokenKind, tokens_of
from broker_admin.filters.operations import MAX_INT, Activation, Operation, Value
from broker_admin.filters.patterns import compile_pattern

MAX_DEPTH = 32
"""Expressions inside expressions, and fields of fields. Each takes some frames of the interpreter's thousand, in the
parser and at every record."""

VARIABLES: Final = ("key", "value", "headers", "offset", "partition", "timestamp")
"""What an expression can ask of a record, by name; ``timestamp`` is in milliseconds since 1970."""

Evaluate: TypeAlias = Callable[[Activation], Value]
Method: TypeAlias = Callable[[Activation, str, str, int], bool]


@attrs.frozen
class Term:
    """A part of an expression, ready to be evaluated.

    ``depth`` counts the closures in closures. ``selected_field`` is the field of ``operand`` that the term is, for
    ``has``; ``literal`` the token that it consists of, for patterns.
    """

    position: int
    evaluate: Evaluate
    depth: int = 1
    operand: Evaluate | None = None
    selected_field: str = ""
    literal: Token | None = None


def starts_with(activation: Activation, text: str, argument: str, position: int) -> bool:
    activation.spend(len(argument))
    return text.startswith(argument)


def ends_with(activation: Activation, text: str, argument: str, position: int) -> bool:
    activation.spend(len(argument))
    return text.endswith(argument)


def contains(activation: Activation, text: str, argument: str, position: int) -> bool:
    # Python's search takes linear time at the worst since 3.10.
    activation.spend(len(text) + len(argument))
    return argument in text


STRING_METHODS: Final[dict[str, Method]] = {"startsWith": starts_with, "endsWith": ends_with, "contains": contains}

FUNCTIONS: Final[dict[str, Callable[[Value, int], Value]]] = {
    "size": operations.size,
    "int": operations.to_int,
    "double": operations.to_double,
    "string": operations.to_string,
}

RELATIONS: Final[dict[str, Operation]] = {
    "==": operations.equal,
    "!=": operations.different,
    "<": operations.ordering("<", operator.lt),
    "<=": operations.ordering("<=", operator.le),
    ">": operations.ordering(">", operator.gt),
    ">=": operations.ordering(">=", operator.ge),
    "in": operations.contained,
}

SUMS: Final[dict[str, Operation]] = {"+": operations.add, "-": operations.subtract}

PRODUCTS: Final[dict[str, Operation]] = {
    "*": operations.multiply,
    "/": operations.divide,
    "%": operations.remainder,
}

KEYWORDS: Final[dict[str, Value]] = {"true": True, "false": False, "null": None}


def parse(text: str) -> Evaluate:
    """The closure that evaluates ``text`` for one record.

    Raises:
        FilterSyntaxError: ``text`` is no expression, or a larger one than is allowed.
    """
    return Parser(tokens_of(text)).whole().evaluate


class Parser:
    """Takes the tokens from the left; each method takes one expression of its level."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._nesting = 0

    # ---- tokens ----

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def take(self) -> Token:
        token = self.token
        self._next += 1
        return token

    def is_at(self, *texts: str) -> bool:
        """Whether the next token is one of these operators, or the name ``in``."""
        token = self.token
        is_word = token.kind is TokenKind.OPERATOR or (token.kind is TokenKind.NAME and token.text == "in")
        return is_word and token.text in texts

    def expect(self, text: str, what: str) -> Token:
        if not self.is_at(text):
            raise FilterSyntaxError(f"{what} needs {text!r}, not {self.found()}", self.token.position)
        return self.take()

    def found(self) -> str:
        return "the end" if self.token.kind is TokenKind.END else repr(self.token.text[:40])

    # ---- expressions, from the loosest ----

    def whole(self) -> Term:
        term = self.expression()
        if self.token.kind is not TokenKind.END:
            raise FilterSyntaxError(f"an operator was expected, not {self.found()}", self.token.position)
        return term

    def expression(self) -> Term:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise too_deep(self.token.position)
        condition = self.disjunction()
        if self.is_at("?"):
            position = self.take().position
            then = self.expression()
            self.expect(":", "a condition with '?'")
            condition = choice(condition, then, self.expression(), position)
        self._nesting -= 1
        return condition

    def disjunction(self) -> Term:
        return self.connected("||", self.conjunction, decisive=True)

    def conjunction(self) -> Term:
        return self.connected("&&", self.relation, decisive=False)

    def connected(self, name: str, operand: Callable[[], Term], *, decisive: bool) -> Term:
        """Operands with ``&&`` or ``||`` between them."""
        first = operand()
        if not self.is_at(name):
            return first
        terms = [first]
        while self.is_at(name):
            self.take()
            terms.append(operand())
        return connection(name, terms, decisive=decisive)

    def relation(self) -> Term:
        return self.chain(RELATIONS, self.sum)

    def sum(self) -> Term:
        return self.chain(SUMS, self.product)

    def product(self) -> Term:
        return self.chain(PRODUCTS, self.unary)

    def chain(self, names: dict[str, Operation], operand: Callable[[], Term]) -> Term:
        """Operands with binary operators of one level between them, from the left."""
        first = operand()
        steps = []
        while self.is_at(*names):
            sign = self.take()
            steps.append((names[sign.text], operand(), sign.position))
        return folded(first, steps) if steps else first

    def unary(self) -> Term:
        signs: list[Token] = []
        while self.is_at("!", "-"):
            signs.append(self.take())
            if signs[0].text != signs[-1].text:
                raise FilterSyntaxError("'!' and '-' do not go together without parentheses", signs[-1].position)
        if signs and signs[-1].text == "-" and type(self.token.value) is int:
            # A literal takes its own minus sign: without it the smallest number would not fit.
            literal = attrs.evolve(self.take(), value=-self._tokens[self._next - 1].value)
            del signs[-1]
            term = self.members(constant(literal))
        else:
            term = self.members(self.primary())
        if not signs:
            return term
        return inverted(term, signs) if signs[0].text == "!" else negative(term, signs)

    # ---- fields, elements, calls ----

    def members(self, term: Term) -> Term:
        while self.is_at(".", "["):
            opening = self.take()
            if opening.text == "[":
                index = self.expression()
                self.expect("]", "an index")
                term = indexed(term, index, opening.position)
            else:
                term = self.member(term)
        return term

    def member(self, term: Term) -> Term:
        name = self.take()
        if name.kind is not TokenKind.NAME:
            raise FilterSyntaxError("'.' needs the name of a field; others go by [\"name\"]", name.position)
        if not self.is_at("("):
            return selection(term, name)
        arguments = self.arguments()
        if name.text == "size":
            self.require_arguments(name, arguments, 0)
            return applied(operations.size, term, name.position)
        if name.text == "matches":
            self.require_arguments(name, arguments, 1)
            return matching(term, arguments[0], name.position)
        if (method := STRING_METHODS.get(name.text)) is None:
            known = ", ".join((*STRING_METHODS, "matches", "size"))
            raise FilterSyntaxError(f"there is no method {name.text[:40]!r}; there are {known}", name.position)
        self.require_arguments(name, arguments, 1)
        return called(method, term, arguments[0], name)

    def arguments(self) -> list[Term]:
        self.expect("(", "a call")
        return self.items(")", "a call")

    def items(self, closing: str, what: str) -> list[Term]:
        terms: list[Term] = []
        while not self.is_at(closing):
            if terms:
                self.expect(",", what)
                if self.is_at(closing):
                    break
            terms.append(self.expression())
        self.expect(closing, what)
        return terms

    def require_arguments(self, name: Token, arguments: Sequence[Term], count: int) -> None:
        if len(arguments) != count:
            takes = "no argument" if count == 0 else "one argument"
            raise FilterSyntaxError(f"{name.text}() takes {takes}, not {len(arguments)}", name.position)

    def primary(self) -> Term:
        token = self.take()
        if token.kind is TokenKind.LITERAL:
            return constant(token)
        if token.kind is TokenKind.NAME and token.text != "in":
            return self.named(token)
        if token.text == "(":
            term = self.expression()
            self.expect(")", "a parenthesis")
            return attrs.evolve(term, operand=None, literal=None)
        if token.text == "[":
            return listed(self.items("]", "a list"), token.position)
        self._next -= 1
        raise FilterSyntaxError(f"a value was expected, not {self.found()}", token.position)

    def named(self, name: Token) -> Term:
        """A variable, a constant, or the call of a function."""
        if self.is_at("("):
            return self.function(name)
        if name.text in KEYWORDS:
            return constant(attrs.evolve(name, value=KEYWORDS[name.text]))
        if name.text not in VARIABLES:
            raise FilterSyntaxError(f"there is no {name.text[:40]!r}; there are {', '.join(VARIABLES)}", name.position)
        return Term(name.position, variable(name.text))

    def function(self, name: Token) -> Term:
        arguments = self.arguments()
        if name.text == "has":
            self.require_arguments(name, arguments, 1)
            return presence(arguments[0], name)
        if (function := FUNCTIONS.get(name.text)) is None:
            known = ", ".join(("has", *FUNCTIONS))
            raise FilterSyntaxError(f"there is no function {name.text[:40]!r}; there are {known}", name.position)
        self.require_arguments(name, arguments, 1)
        return applied(function, arguments[0], name.position)


def too_deep(position: int) -> FilterSyntaxError:
    return FilterSyntaxError(f"expressions are nested at most {MAX_DEPTH} deep", position)


def around(position: int, evaluate: Evaluate, *inner: Term) -> Term:
    """The term that ``evaluate`` makes of ``inner``, if that is not too deep."""
    depth = 1 + max((term.depth for term in inner), default=0)
    if depth > MAX_DEPTH:
        raise too_deep(position)
    return Term(position, evaluate, depth)


# ---- closures ----


def constant(token: Token) -> Term:
    value = token.value
    if type(value) is int and value > MAX_INT:
        raise FilterSyntaxError(f"{token.text} does not fit in 64 bits", token.position)
    return Term(token.position, lambda activation: value, literal=token)


def variable(name: str) -> Evaluate:
    get = operator.attrgetter(name)
    return lambda activation: get(activation.variables)


def require_bool(value: Value, where: str, position: int) -> bool:
    if isinstance(value, bool):
        return value
    raise EvaluationError(f"{where} takes a bool, not {operations.type_name(value)}", position)


def connection(name: str, terms: Sequence[Term], *, decisive: bool) -> Term:
    """``&&``, which one false decides, or ``||``, which one true decides, whatever errors the others are."""
    operands = [(term.evaluate, term.position) for term in terms]

    def run(activation: Activation) -> bool:
        error: EvaluationError | None = None
        for evaluate, position in operands:
            try:
                if require_bool(evaluate(activation), name, position) is decisive:
                    return decisive
            except EvaluationError as each:
                error = error or each
        if error is not None:
            raise error
        return not decisive

    return around(terms[0].position, run, *terms)


def choice(condition: Term, then: Term, otherwise: Term, position: int) -> Term:
    decide, if_true, if_false = condition.evaluate, then.evaluate, otherwise.evaluate

    def run(activation: Activation) -> Value:
        is_true = require_bool(decide(activation), "?", position)
        return if_true(activation) if is_true else if_false(activation)

    return around(position, run, condition, then, otherwise)


def folded(first: Term, steps: Sequence[tuple[Operation, Term, int]]) -> Term:
    """Binary operations, one after the other."""
    begin = first.evaluate
    inner = (first, *(term for _, term, _ in steps))
    if len(steps) == 1:
        [(only, term, position)] = steps
        argument = term.evaluate
        return around(
            position, lambda activation: only(activation, begin(activation), argument(activation), position), *inner
        )
    rest = [(operation, term.evaluate, position) for operation, term, position in steps]

    def run(activation: Activation) -> Value:
        value = begin(activation)
        for operation, evaluate, position in rest:
            value = operation(activation, value, evaluate(activation), position)
        return value

    return around(first.position, run, *inner)


def inverted(term: Term, signs: Sequence[Token]) -> Term:
    evaluate, position, is_odd = term.evaluate, signs[-1].position, len(signs) % 2 == 1

    def run(activation: Activation) -> bool:
        return require_bool(evaluate(activation), "!", position) is not is_odd

    return around(position, run, term)


def negative(term: Term, signs: Sequence[Token]) -> Term:
    evaluate, position, times = term.evaluate, signs[-1].position, 2 - len(signs) % 2

    def run(activation: Activation) -> Value:
        value = evaluate(activation)
        for _ in range(times):
            value = operations.negated(value, position)
        return value

    return around(position, run, term)


def selection(term: Term, name: Token) -> Term:
    evaluate, field, position = term.evaluate, name.text, name.position
    made = around(position, lambda activation: operations.selected(evaluate(activation), field, position), term)
    return attrs.evolve(made, operand=evaluate, selected_field=field)


def indexed(term: Term, index: Term, position: int) -> Term:
    evaluate, at = term.evaluate, index.evaluate
    return around(
        position, lambda activation: operations.element(evaluate(activation), at(activation), position), term, index
    )


def listed(terms: Sequence[Term], position: int) -> Term:
    elements = [term.evaluate for term in terms]
    return around(position, lambda activation: [evaluate(activation) for evaluate in elements], *terms)


def applied(function: Callable[[Value, int], Value], term: Term, position: int) -> Term:
    evaluate = term.evaluate
    return around(position, lambda activation: function(evaluate(activation), position), term)


def presence(term: Term, name: Token) -> Term:
    evaluate, field, position = term.operand, term.selected_field, name.position
    if evaluate is None:
        raise FilterSyntaxError("has() takes a field, such as has(value.amount)", position)
    return around(position, lambda activation: operations.has_field(evaluate(activation), field, position), term)


def called(method: Method, term: Term, argument: Term, name: Token) -> Term:
    text, wanted, position = term.evaluate, argument.evaluate, name.position

    def run(activation: Activation) -> bool:
        of, what = text(activation), wanted(activation)
        if isinstance(of, str) and isinstance(what, str):
            return method(activation, of, what, position)
        types = f"{operations.type_name(of)}.{name.text}({operations.type_name(what)})"
        raise EvaluationError(f"{types} has no meaning", position)

    return around(position, run, term, argument)


def matching(term: Term, argument: Term, position: int) -> Term:
    """``text.matches(pattern)``: the pattern is a literal, compiled once."""
    if argument.literal is None or not isinstance(argument.literal.value, str):
        raise FilterSyntaxError("matches() takes a pattern in quotes", argument.position)
    compiled: Any = compile_pattern(argument.literal.value, argument.position)
    text = term.evaluate

    def run(activation: Activation) -> bool:
        of = text(activation)
        if not isinstance(of, str):
            raise EvaluationError(f"{operations.type_name(of)}.matches(string) has no meaning", position)
        activation.spend(len(of))
        # Bytes, since the library would count characters to say where it matched; half surrogates are none.
        return compiled.search(of.encode("utf-8", "replace")) is not None

    return around(position, run, term)
