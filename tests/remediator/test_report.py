from __future__ import annotations

from llm_remediator.report import summarize, text
from remediator.fake_service import NOW, decision


def test_what_observe_mode_would_have_done_and_what_happened_next() -> None:
    found = [
        decision(at=NOW + 60, decision="would_act", text="stuck, proven", outcome="still stuck 20m later"),
        decision(at=NOW, decision="would_act", text="stuck, proven", outcome="it worked again by itself: needless"),
        decision(decision="skip", reason="not_confirmed", evidence={"count": 40, "kind": "alert"}),
        decision(decision="defer", reason="cooldown", evidence={"count": 2}),
        decision(decision="act", evidence={"kind": "drill"}),
        decision(target="removed"),
        decision(target="b", decision="act", text="stuck", outcome=""),
        decision(target="b", decision="latch", text="3 starts did not mend it"),
    ]
    reports = summarize(found, ["a", "b", "c"])
    a, b, c = reports
    assert [act.at for act in a.acted] == [NOW, NOW + 60]
    assert a.refused == (("not_confirmed", 40), ("cooldown", 2))
    assert b.acted[0].real
    assert b.latches[0][1] == "3 starts did not mend it"
    assert not c.acted
    shown = text(reports, "observe", "7d")
    assert "1 restarts made, 2 would have been made" in shown
    assert "1 would have been needless" in shown
    assert "next: still stuck 20m later" in shown
    assert "next: not known yet" in shown
    assert "refused: not_confirmed x40, cooldown x2" in shown
    assert "nothing asked for a restart" in shown
    assert "removed" not in shown
