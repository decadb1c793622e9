#!/bin/sh
# Refuses to start a deployment whose images are not named by digest, if IMAGE_DIGESTS_REQUIRED is true. IMAGES: every image.
set -eu
case $IMAGE_DIGESTS_REQUIRED in
    true) ;;
    false) exit 0 ;;
    *) echo "check-images: IMAGE_DIGESTS_REQUIRED must be true or false" >&2; exit 2 ;;
esac
refused=0
for image in $IMAGES; do
    if ! printf '%s\n' "$image" | grep -Eq '@sha256:[0-9a-f]{64}$'; then
        echo "check-images: $image is named by tag; name it by digest (name@sha256:...)" >&2
        refused=1
    fi
done
exit $refused
