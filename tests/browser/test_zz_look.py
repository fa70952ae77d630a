from __future__ import annotations

from pathlib import Path
from typing import Any

from django.utils import timezone

from outputs_app.models import *
from requests_app.feed import emit_event, publish
from requests_app.models import Limit
from sites_app.models import *
from tests.support.browser import window
from tests.support.scene import build
from wms2.audit import audit
from wms2.models import Worker


def test_look(chromium: Any, live_server: Any, operator: Any, tmp_path: Path) -> None:
    scene = build(tmp_path)
    now = timezone.now()
    Worker.objects.create(name="celery@host1", queues=["celery"], takes=["celery"], started_at=now, heartbeat_at=now)
    Limit.objects.update_or_create(
        name="max_active_dags", defaults={"value": 250, "actor": "olga", "reason": "the schedd is slow"}
    )
    schedd = Schedd.objects.first()
    Schedd.objects.filter(pk=schedd.pk).update(health="degraded", health_reason="duty cycle 0.99 for 20 min", health_since=now)
    HealthChange.objects.create(schedd=schedd, at=now, old="healthy", new="degraded", reason="duty cycle")
    audit(actor="olga", action="request_hold", target=scene.held.request_name, target_type="request", reason="looks odd")
    emit_event("request.status", scene.held, **{"from": "active", "to": "held"})
    emit_event("site.status", None, **{"name": "T2_CH_CERN", "from": "enabled", "to": "draining", "reason": "tape full"})
    publish()
    block = ProcessingBlock.objects.first()
    out = Path("/tmp/n_shots")
    out.mkdir(exist_ok=True)
    pages = {
        "operations": "/operations/",
        "schedd": f"/operations/schedds/{schedd.name}/",
        "activity": "/operations/activity/",
        "outputs": "/outputs/",
        "block": f"/outputs/blocks/{block.pk}/",
        "dataset": f"/outputs/datasets/?name={block.dataset_name}",
        "lost": "/cases/lost-files/",
    }
    bad = []
    for dark in (False, True):
        for width in (1440, 390):
            with window(chromium, live_server.url, dark=dark, width=width) as opened:
                opened.sign_in_as(operator)
                for name, path in pages.items():
                    opened.go(path)
                    if opened.overflow:
                        bad.append((name, width, opened.overflow))
                    opened.page.screenshot(path=str(out / f"{name}-{width}-{'dark' if dark else 'light'}.png"), full_page=True)
                bad += opened.complaints
    print("BAD", bad)
    assert not bad
