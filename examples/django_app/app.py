"""An agent's backend on Django, in one file: the view's own row and the snapshot are committed together or not at all."""

import json
import os
import sys
from urllib.parse import parse_qs, unquote, urlsplit

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_POST
from mneme_client import InvalidInput, SnapshotConflict, memory, write_snapshot

address = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": address.path.lstrip("/"),
            "USER": unquote(address.username or ""),
            "PASSWORD": unquote(address.password or ""),
            # A directory is the place of a unix socket, as in the addresses of `mneme up`.
            "HOST": address.hostname or parse_qs(address.query).get("host", [""])[0],
            "PORT": str(address.port or ""),
        }
    },
)
django.setup()


@require_POST
def write(request: HttpRequest, session_id: str) -> HttpResponse:
    """Write a snapshot. The session is sent to the worker when the outermost ``atomic`` has committed."""
    try:
        body = json.loads(request.body)
        span_start, span_end, content = body["span_start"], body["span_end"], body["content"]
    except (ValueError, KeyError, TypeError):
        return JsonResponse({"error": "expected JSON with span_start, span_end and content"}, status=400)
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("insert into django_app_audit (session_id) values (%s)", [session_id])
            node_id = write_snapshot(connection, session_id, span_start, span_end, content)
    except (InvalidInput, SnapshotConflict) as error:
        return JsonResponse({"error": str(error)}, status=409 if isinstance(error, SnapshotConflict) else 422)
    return JsonResponse({"id": str(node_id)}, status=201)


@require_GET
def read(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return what to put into the agent's context."""
    try:
        text = memory(connection, session_id, int(request.GET.get("token_budget", "100000")))
    except (ValueError, InvalidInput) as error:
        return JsonResponse({"error": f"token_budget: {error}"}, status=422)
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


urlpatterns = [
    path("sessions/<str:session_id>/snapshots", write),
    path("sessions/<str:session_id>/memory", read),
]


def create_table() -> None:
    """Create the app's own table; in a larger app this is a model with its migration."""
    with connection.cursor() as cursor:
        cursor.execute(
            "create table if not exists django_app_audit"
            " (id bigserial primary key, session_id text not null, at timestamptz not null default now())"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["migrate"]:
        create_table()
    else:
        execute_from_command_line(sys.argv)
