"""What a page shows of a terminal."""

import re


def console(text: str) -> list[str]:
    """The lines of a page's ``console`` blocks, commands with their prompt, continued ones in one line."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.S)
    return [
        re.sub(r" \\\n\s*", " ", line) for b in blocks for line in re.split(r"(?<!\\)\n", b) if line
    ]
