"""HTML from nested calls: text is escaped where it enters, so that nothing from an alert is ever markup."""

from __future__ import annotations

from html import escape

_VOID = frozenset({"meta", "input", "br", "hr"})


class Markup(str):
    """HTML that this module made."""

    __slots__ = ()


Child = str | Markup | float | None


def tag(name: str, /, *children: Child, **attributes: str | bool | None) -> Markup:
    """An element. Text children and attribute values are escaped; `class_` is `class`, `a_b` is `a-b`.

    None children are left out; an attribute that is True stands alone, False or None is left out.
    """
    attrs = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        attrs += f" {label}" if value is True else f' {label}="{escape(value)}"'
    if name in _VOID:
        return Markup(f"<{name}{attrs}>")
    return Markup(f"<{name}{attrs}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after another."""
    return Markup("".join(_html(c) for c in children if c is not None))


def _html(child: Child) -> str:
    return child if isinstance(child, Markup) else escape(str(child))
