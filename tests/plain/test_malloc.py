"""Freed memory stays with the process, unless the user decides."""

from typing import Any

from vaswani_transformer.fast.malloc import keep_freed_memory


def test_settings_of_the_user_stay(monkeypatch: Any) -> None:
    """Somebody who tunes his allocator is not overruled."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory.__wrapped__()
