"""Flags of local attention and BigBird, of every kind."""

LOCAL = ["--attention", "local", "--local-window"]
BIGBIRD = ["--attention", "bigbird", "--bigbird-block-size", "4", "--bigbird-random-blocks"]
KERNELS = {
    "window": [*LOCAL, "6,4"],
    "global": [*LOCAL, "34", "--local-global-tokens", "3"],
    "dilated": [*LOCAL, "6", "--local-dilation", "3", "--local-global-tokens", "1"],
    "blocks": [*BIGBIRD, "0", "--bigbird-global-blocks", "0"],
    "random": [*BIGBIRD, "2", "--bigbird-global-blocks", "2"],
}
