"""Users, groups and roles in the admin: admins give roles, Django's own pages are superusers' alone; changes are audited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.http import HttpRequest

from wms2.admin.forms import TextsField
from wms2.admin.readonly import SeenByAll
from wms2.admin.shown import EMPTY, said_column
from wms2.audit import audit
from wms2.identities.grants import is_admin, name_refused
from wms2.identities.people import constraint_problems
from wms2.models import RoleAssignment


class AuditedAdmin(admin.ModelAdmin):
    """Its changes stand in the audit beside Django's own log: who, which row, which columns."""

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """A row was added."""
        self._audit(request, "added", obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """A row was changed."""
        self._audit(request, "changed", obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Rows are deleted."""
        for row in queryset:
            self._audit(request, "deleted", row, "")
        return super().log_deletions(request, queryset)

    def _audit(self, request: HttpRequest, what: str, row: Model, message: Any) -> None:
        name = str(self.opts.model_name)
        actor = request.user.get_username()[:100]
        audit(
            actor=actor, action=f"{name}_{what}", target=str(row)[:300], target_type=name, changes=message, **self.evidence(row)
        )

    def evidence(self, row: Any) -> dict[str, Any]:
        """What the audit holds of a row beside its name."""
        return {}


class OfSuperusers(AuditedAdmin):
    """Django's own pages of users: who may change them may become anyone."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Superusers alone, whatever permissions a group has; in a session by single sign-on as long as the issuer says admin."""
        return bool(request.user.is_active and request.user.is_superuser and is_admin(request.user))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The same."""
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """The same."""
        return self.has_module_permission(request)

    has_change_permission = has_delete_permission = has_view_permission


class _NamedForm(forms.ModelForm):
    """A name that is given to a user is one that they may have."""

    def clean_username(self) -> str:
        """Refused where it is another than before, and one that no user may have."""
        name: str = getattr(super(), "clean_username", lambda: self.cleaned_data["username"])()
        if "username" in self.changed_data and (why := name_refused(name)):
            raise ValidationError(why)
        return name


class _NewUserForm(_NamedForm, AdminUserCreationForm):
    pass


class _UserForm(_NamedForm, UserChangeForm):
    pass


class SuperusersUserAdmin(OfSuperusers, UserAdmin):
    """Users. Django's pair of lists has marks that screen readers may not read, and its boxes of moments have no labels."""

    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")

    add_form = _NewUserForm
    form = _UserForm

    def evidence(self, row: Any) -> dict[str, Any]:
        """What decides on their roles."""
        return {"is_active": row.is_active, "is_staff": row.is_staff, "is_superuser": row.is_superuser}


class SuperusersGroupAdmin(OfSuperusers, GroupAdmin):
    """Groups; one list, as above."""

    filter_horizontal = ()


class RoleForm(forms.ModelForm):
    """Names as people type them; what does not fit the role is said at its field."""

    cms_groups = TextsField(required=False, label="CMS groups", help_text="Of a requester: CMS groups, separated by spaces.")
    sites = TextsField(required=False, help_text="Of a site admin: names of sites, separated by spaces.")

    class Meta:
        model = RoleAssignment
        fields: ClassVar[Sequence[str]] = ("role", "user", "group", "cms_groups", "sites", "reason")

    def clean(self) -> dict[str, Any]:
        """One holder, and limits that fit."""
        given = dict(super().clean() or {})
        if bool(given.get("user")) == bool(given.get("group")):
            self.add_error("user", "Give a user or a group, not both.")
        limits = given.get("cms_groups", ()), given.get("sites", ())
        for field, problem in constraint_problems(given.get("role", ""), *limits).items():
            self.add_error(field, problem)
        return given


#: CMS groups and sites that a role is limited to.
_LIMITED_TO = (
    said_column("groups_in_words", "CMS groups", lambda row: ", ".join(row.cms_groups) or EMPTY),
    said_column("sites_in_words", "sites", lambda row: ", ".join(row.sites) or EMPTY),
)


@admin.register(RoleAssignment)
class RoleAssignmentAdmin(AuditedAdmin, SeenByAll):
    """Who has which role. All who may open the admin see it; admins change it."""

    form = RoleForm
    list_display = ("role", "user", "group", *_LIMITED_TO, "reason", "actor", "updated_at")
    list_display_links = ("role",)
    list_filter = ("role",)
    list_select_related = ("user", "group")
    search_fields = ("user__username", "group__name")
    search_help_text = "Part of a user's or group's name."

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """With who gave it."""
        obj.actor = request.user.get_username()[:100]
        super().save_model(request, obj, form, change)

    def evidence(self, row: Any) -> dict[str, Any]:
        """What the role holds for."""
        return {"role": row.role, "cms_groups": row.cms_groups, "sites": row.sites, "reason": row.reason}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Admins."""
        return is_admin(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Admins."""
        return is_admin(request.user)

    has_delete_permission = has_change_permission


admin.site.unregister((User, Group))
admin.site.register(User, SuperusersUserAdmin)
admin.site.register(Group, SuperusersGroupAdmin)
