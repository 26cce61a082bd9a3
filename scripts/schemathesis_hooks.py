"""Makes some of the requests of scripts/schemathesis good ones: what is made up hardly ever names an object that is there,
with the entity tag that it has. And tells which calls were never answered with a success, so that it is seen."""

import atexit
import copy
import hashlib
import itertools
import json
import os
import zlib

import requests
import schemathesis

URL = os.environ["TIDEGATE_URL"]
# Nobody else asks in their place: the session of the run is in the environment.
SESSION = requests.Session()
SESSION.headers["cookie"] = "{}={}".format(os.environ["TIDEGATE_COOKIE"], os.environ["TIDEGATE_SESSION"])

SESSION.headers["x-csrf-token"] = os.environ["TIDEGATE_CSRF"]

PERSON = json.loads(os.environ["TIDEGATE_PERSON"])

asked, succeeded = set(), set()
counter = itertools.count()


def name(case):
    return f"{case.method.upper()} {case.operation.path}"


def get(path, **query):
    answer = SESSION.get(URL + path, params=query, timeout=10)
    return answer.json() if answer.ok else None


def post(path, body):
    SESSION.post(URL + path, json=body, timeout=10)


def ids(path, **query):
    """Of the objects of the default domain that this path lists."""
    return [item["id"] for item in (get(path, limit=500, **query) or {"items": []})["items"]]


def seed():
    """Clients and a draft, where others have taken them away: the example policy has none."""
    if not get("/drafts", limit=1)["items"]:
        post("/drafts", {"base_version": 1, "message": "a draft", "changes": []})
    # One of each is left where one is removed.
    for _ in range(2 - len(ids("/clients", has_override="true", tier="free"))):
        reason = {"unlimited": True, "reason": "a test"}
        post("/clients", {"kind": "user", "value": f"seed-{next(counter)}", "tier": "free", "override": reason})


def seed_people():
    """Users and tokens, where others have taken them away."""
    for _ in range(2 - len(others())):
        post("/users", {"name": f"seed-{next(counter)}", "role": "viewer", "password": "a few words of a seed"})
    for _ in range(2 - len(ids("/tokens"))):
        # A name is given once.
        post("/tokens", {"name": f"seed {os.getpid()} {next(counter)}", "role": "viewer"})


def others():
    """Users but the one who asks, who is to stay."""
    return [user for user in ids("/users") if user != PERSON["name"]]


def other_session():
    """A session of who asks, but the one that asks."""
    found = [session["id"] for session in get("/me/sessions")["items"] if not session["is_this"]]
    if not found:
        requests.post(URL + "/session", json=PERSON, timeout=10)
        found = [session["id"] for session in get("/me/sessions")["items"] if not session["is_this"]]
    return found[0] if found else None


def written_whole(value):
    """With 5 for 5.0: to JSON schema that is a whole number, to our readers not."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [written_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: written_whole(item) for key, item in value.items()}
    return value


def example(case):
    """The body that the document shows."""
    content = case.operation.definition.raw.get("requestBody", {}).get("content", {})
    return next((copy.deepcopy(of["example"]) for of in content.values() if "example" in of), None)


def spare_own(case):
    """Who asks stays, and so does his session: their names come from answers too, on all ways."""
    own = {"id": PERSON["name"], "session": hashlib.sha256(os.environ["TIDEGATE_SESSION"].encode()).hexdigest()[:16]}
    for parameter, value in own.items():
        if (case.path_parameters or {}).get(parameter) == value:
            case.path_parameters[parameter] = "nobody"


@schemathesis.hook
def before_call(context, case, kwargs):
    method, path = case.method.upper(), case.operation.path
    if method != "GET":
        spare_own(case)
    if method == case.operation.method.upper():
        asked.add(name(case))
    # What is meant to be wrong stays so; of the others all are made good until one succeeds, and then a part. A body that is
    # meant to be wrong is sent to an object that is there, with its tag, or nobody would look into it.
    wrong = {location.value for location, part in case.meta.components.items() if not part.mode.is_positive}
    draw = zlib.crc32(repr((name(case), case.path_parameters, case.query, case.body)).encode())
    if wrong - {"body"}:
        return
    if not wrong:
        case.body = written_whole(case.body)
        if draw % 4 == 0 and name(case) in succeeded:
            return
    if path.startswith(("/clients", "/drafts")):
        seed()
    if path.startswith(("/users", "/tokens")):
        seed_people()
    if case.headers is not None:
        case.headers.pop("Idempotency-Key", None)
    for parameter, value in (("domain", "default"), ("message", "a test")):
        if case.query and parameter in case.query:
            case.query[parameter] = value
    if case.query and "cursor" in case.query:
        del case.query["cursor"]
    if not wrong and (draw % 4 == 1 or name(case) not in succeeded) and example(case) is not None:
        case.body = example(case)
        if path == "/clients/bulk":
            case.body["expected"] = get("/clients", **case.body["matching"])["matching"]
    if path == "/session" and method == "POST":
        case.body = dict(PERSON)
    if path.startswith("/me/second-factor") and method == "POST" and not wrong:
        case.body = {"password": PERSON["password"]}
    if path == "/me/password" and not wrong:
        case.body = {"present": PERSON["password"], "password": PERSON["password"]}
    if "{id}" in path:
        of_override = path.endswith("/override")
        known = ids("/" + path.split("/")[1], **({"has_override": "true"} if of_override and method != "PUT" else {}))
        if path.startswith("/users"):
            known = others()
        # One of each is left for those that come later.
        if len(known) > (method == "DELETE"):
            case.path_parameters["id"] = known[draw % len(known)]
            # The example is put where it belongs: elsewhere it could be a second rule for the same requests.
            own = case.body.get("id") if method == "PUT" and isinstance(case.body, dict) else None
            if own in known and case.body == example(case):
                case.path_parameters["id"] = own
                # Nothing is published where everything is like this already.
                for limit in case.body.get("limits") or []:
                    limit["limit"] += next(counter)
        if method == "PUT" and not wrong and isinstance(case.body, dict) and not of_override:
            own = case.path_parameters["id"]
            kind = path.split("/")[1]
            of_client = dict(zip(("kind", "value"), own.split(":", 1)))
            case.body.update({"tiers": {"id": own}, "rules": {"id": own}, "clients": of_client}.get(kind, {}))
    if path.startswith("/nodes/{name}"):
        case.path_parameters["name"] = get("/nodes")["items"][0]["node"]
    if "{session}" in path and (session := other_session()):
        case.path_parameters.update({"session": session} | ({"id": PERSON["name"]} if "{id}" in path else {}))
    if method in ("PUT", "PATCH", "DELETE") or "If-Match" in (case.headers or {}):
        whole = path in ("/policy/rollback", "/clients/import")
        of = "/policy" if whole else case.formatted_path.removesuffix("/override")
        answer = SESSION.get(URL + of, timeout=10)
        if "etag" in answer.headers and case.headers is not None:
            case.headers["If-Match"] = answer.headers["etag"]
            case.headers.pop("If-None-Match", None)


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code < 300:
        succeeded.add(name(case))


@atexit.register
def tell():
    with open(os.environ["TIDEGATE_NEVER"], "w", encoding="utf-8") as file:
        file.writelines(f"{call}\n" for call in sorted(asked - succeeded))
