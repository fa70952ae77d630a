"""The outbox and the durable task in one: everything still owed to DBS and Rucio (docs/design/model.md, Effects)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone


class EffectKind(models.TextChoices):
    """What is to be done outside; one handler each in ``outputs_app.effects``."""

    RUCIO_BLOCK = "rucio_block", "Create container and block in Rucio"
    RUCIO_FILES = "rucio_files", "Register replicas and attach to the block"
    RUCIO_PROTECT = "rucio_protect", "Protect files at their RSE"
    RUCIO_BLOCK_CLOSE = "rucio_block_close", "Close block in Rucio"
    DBS_BLOCK = "dbs_block", "Register block in DBS"
    RUCIO_TAPE = "rucio_tape", "Tape rule for the block"
    DBS_VALID = "dbs_valid", "Make a whole dataset VALID in DBS"
    INVALIDATION_MANIFEST = "invalidation_manifest", "Write the list of what is to be invalidated"
    RUCIO_RELEASE = "rucio_release", "Delete the rules of a dataset"
    DBS_INVALIDATE = "dbs_invalidate", "Invalidate a dataset in DBS"
    RUCIO_SOURCE_BLOCK = "rucio_source_block", "One source rule for a block at one RSE instead of its files'"
    RUCIO_DISK = "rucio_disk", "Rule on disk for the container"
    RUCIO_UNPROTECT = "rucio_unprotect", "Delete the source rules of a block"
    FILES_INVALIDATE = "files_invalidate", "Take back single files of a block"
    BLOCK_VALIDATE = "block_validate", "Compare a block with DBS and Rucio"
    REQMGR2_STATUS = "reqmgr2_status", "Tell ReqMgr2 the status"
    REQMGR2_TOTALS = "reqmgr2_totals", "Tell ReqMgr2 how much work a round has"
    REQMGR2_CLONE = "reqmgr2_clone", "Clone the request in ReqMgr2"


#: Reports: no other effect waits for them, and they are sent also after the outputs were taken back.
REPORTS = (EffectKind.REQMGR2_STATUS, EffectKind.REQMGR2_TOTALS, EffectKind.REQMGR2_CLONE)


class EffectState(models.TextChoices):
    """pending -> claimed -> done; a refusal (4xx) -> refused; retries used up -> dead. An operator revives both, or discards one
    that is not done: it is never run."""

    PENDING = "pending", "Pending"
    CLAIMED = "claimed", "Claimed"
    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    DEAD = "dead", "Dead"
    DISCARDED = "discarded", "Discarded"


#: States that keep a request from leaving ACTIVE.
OPEN_EFFECT = (EffectState.PENDING, EffectState.CLAIMED, EffectState.REFUSED, EffectState.DEAD)
#: Of a block that is registered and archived without them.
AFTERWARDS = (EffectKind.RUCIO_SOURCE_BLOCK, EffectKind.RUCIO_UNPROTECT, EffectKind.BLOCK_VALIDATE)
#: No longer waited for.
SETTLED_EFFECT = (EffectState.DONE, EffectState.DISCARDED)


class Effect(models.Model):
    """One outside action, with a key that makes asking twice the same as asking once.

    Claimed with a lease, called with no transaction open, recorded with a compare-and-set on the claim: each may happen twice.
    """

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey("requests_app.Request", on_delete=models.PROTECT, related_name="effects")
    block = models.ForeignKey(
        "outputs_app.ProcessingBlock", on_delete=models.PROTECT, null=True, blank=True, related_name="effects"
    )
    unit = models.ForeignKey("dags_app.WorkUnit", on_delete=models.PROTECT, null=True, blank=True, related_name="effects")
    kind = models.CharField(max_length=40, choices=EffectKind.choices)
    key = models.CharField(max_length=300, unique=True)
    payload = models.JSONField(default=dict)
    result = models.JSONField(default=dict, blank=True)
    depends_on = models.ManyToManyField("self", symmetrical=False, related_name="dependents", blank=True)
    state = models.CharField(max_length=10, choices=EffectState.choices, default=EffectState.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    first_failed_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)
    claimed_by = models.CharField(max_length=200, blank=True)
    claim_epoch = models.BigIntegerField(default=0, help_text="rises with each claim; a late result of an older claim is dropped")
    claim_expires_at = models.DateTimeField(null=True, blank=True)
    epoch = models.BigIntegerField(default=1, help_text="the request's epoch when it was created; an older one is not run")
    created_at = models.DateTimeField(auto_now_add=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "effects"
        ordering = ("id",)
        constraints = (
            models.CheckConstraint(condition=Q(state__in=EffectState.values), name="effect_state_known"),
            models.CheckConstraint(condition=Q(kind__in=EffectKind.values), name="effect_kind_known"),
            models.CheckConstraint(
                condition=~Q(state=EffectState.CLAIMED) | Q(claim_expires_at__isnull=False), name="effect_claim_expires"
            ),
        )
        indexes = (
            models.Index(fields=("next_attempt_at",), name="effect_due", condition=Q(state=EffectState.PENDING)),
            models.Index(fields=("claim_expires_at",), name="effect_claims", condition=Q(state=EffectState.CLAIMED)),
            models.Index(fields=("request", "state"), name="effect_open", condition=~Q(state=EffectState.DONE)),
        )

    def __str__(self) -> str:
        return self.key
