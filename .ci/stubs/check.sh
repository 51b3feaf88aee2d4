#!/usr/bin/env bash
# Compiles the stubs for Java-lite, which Android uses, and generates those for C# and Objective-C, whose names it checks:
# every type is in its place, and no two meet. Compiling C# needs Google.Protobuf, which only NuGet has, and Objective-C
# needs Apple's frameworks. Needs java and mvn. Writes to the folder named by the first argument.
set -euo pipefail
work=${1:?folder}
root=$(cd "$(dirname "$0")/../.." && pwd)

mkdir -p "$work/.ci/stubs"
cp "$root/.ci/stubs/pom.xml" "$work/.ci/stubs"
cp -r "$root/proto" "$work"
cd "$work/.ci/stubs"
# The quick compiler alone: Maven ends before the thorough one has paid.
MAVEN_OPTS=-XX:TieredStopAtLevel=1 mvn --quiet --batch-mode compile
cd target/generated-sources/other

# Fails when the lines of the second text are not all of the first one, or when there are none.
all_are() {
    local what=$1 wrong
    wrong=$(grep -vE "$2" <<<"$3") && { printf '%s\n' "$what:" "$wrong" >&2; return 1; }
    [ -n "$3" ]
}

# Prints the lines that occur more than once, however they are written: files on some systems do not tell cases apart.
twice() {
    sort --ignore-case <<<"$1" | uniq --ignore-case --repeated
}

protos=$(find "$root/proto" -name '*.proto' | wc -l)
csharp=$(find . -name '*.cs')
classes=$(grep --no-filename --only-matching --perl-regexp '^  public (sealed |static )?(partial )?(class|enum) \K\w+' $csharp)
all_are "C# namespaces that are not Turnwire.Opencode" '^namespace Turnwire\.Opencode \{$' \
    "$(grep --no-filename '^namespace ' $csharp)"
all_are "C# types with the name of a namespace" '^[^ ]+$' \
    "$(sed -E 's/^(Turnwire|Opencode|Google|System)$/& is a namespace/' <<<"$classes")"
[ -z "$(twice "$classes")" ] || { printf 'C# types that meet:\n%s\n' "$(twice "$classes")" >&2; exit 1; }
[ "$(wc -l <<<"$csharp")" -eq "$protos" ]

headers=$(find . -name '*.pbobjc.h')
names=$(grep --no-filename --only-matching --perl-regexp '^(@interface|typedef GPB_ENUM\()\s*\K\w+' $headers)
all_are "Objective-C types without the prefix" '^TWR' "$names"
[ -z "$(twice "$names")" ] || { printf 'Objective-C types that meet:\n%s\n' "$(twice "$names")" >&2; exit 1; }
[ "$(wc -l <<<"$headers")" -eq "$protos" ]

printf 'Java-lite: compiled, %s classes\n' "$(find ../../classes -name '*.class' | wc -l)"
printf 'C#: generated, %s types named as they should; not compiled: Google.Protobuf comes from NuGet only\n' "$(wc -l <<<"$classes")"
printf "Objective-C: generated, %s types named as they should; not compiled: needs Apple's frameworks\n" "$(wc -l <<<"$names")"
