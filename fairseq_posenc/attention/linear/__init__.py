"""Linear attention: feature maps, sums over keys, and the layers that use them."""
