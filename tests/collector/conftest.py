"""The scripted agent is installed for every test of the collector."""

from __future__ import annotations

from tests.support import testkit

testkit.install()
