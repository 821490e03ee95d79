"""Shows examples in docstrings as code on the site.

Google's style has a section `Examples:`, and the project writes `Example:` for the one that a
docstring has. The tool that reads them knows only the first.
"""

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Renames the section while a module is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
