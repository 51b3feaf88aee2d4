#!/bin/sh
# Fails when the contract breaks its callers: those of the fixed contract, and those of what main (or $BASE) had.
set -eu
cd "$(dirname "$0")/.."
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT

echo "Comparing with the fixed contract"
buf breaking --exclude-imports --config tests/contract/buf.fixed.yaml --against tests/contract/fixed_contract.binpb

compare() {
    if [ -z "$(git ls-tree -d --name-only "$1" proto)" ]; then
        echo "Nothing to compare with: $1 has no contract"
        return
    fi
    # Our own part was frozen together with its last file; before that it had no clients and changed freely.
    if ! git cat-file -e "$1:proto/opencode/turn/turn_service.proto" 2>/dev/null; then
        echo "Nothing to compare with: $1 is older than the freeze of our own part"
        return
    fi
    echo "Comparing with $(git log -1 --format='%h (%s)' "$1")"
    # Not buf's own git input: that needs a .git folder and a branch, which a worktree and a CI checkout do not have.
    rm -rf "$before" && mkdir "$before"
    git archive "$1" buf.yaml proto | tar -x -f - -C "$before"
    buf breaking --against "$before"
}

if [ -n "${BASE:-}" ]; then
    base=$(git rev-parse --verify --end-of-options "$BASE^{commit}")
    compare "$base"
    exit
fi
if ! head=$(git rev-parse --verify --quiet HEAD); then
    echo "Nothing else to compare with: no commit here"
    exit
fi
# A remote's main comes second: a developer's own main is at least as new as what the branch started from.
base=
for ref in refs/heads/main refs/remotes/origin/main; do
    if git rev-parse --verify --quiet "$ref" >/dev/null; then
        # Where the branch left main: what main gained since then is not missing here.
        base=$(git merge-base "$ref" HEAD) || base=$(git rev-parse "$ref")
        break
    fi
done
base=${base:-$head}
compare "$base"
# On main itself, and without any main, the newest commit is what has to be judged too.
if [ "$base" = "$head" ]; then
    if git rev-parse --verify --quiet HEAD~1 >/dev/null; then
        compare HEAD~1
    else
        echo "Nothing else to compare with: HEAD has no parent here"
    fi
fi
