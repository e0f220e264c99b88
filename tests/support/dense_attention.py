"""A layer's attention, computed densely from the positions of all queries and keys."""

import torch


def rotated(x, positions):
    """x (B, H, T, D), each channel pair rotated by the *positions* (T) times its frequency."""
    size = x.size(-1)
    theta = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = positions.double().unsqueeze(1) * theta
    a, b = x[..., ::2], x[..., 1::2]
    turned = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
    return torch.stack(turned, dim=-1).flatten(-2)


def attended(encoder, layer, x, keys, at, key_at, hidden):
    """A layer's attention output; *at* and *key_at* are the positions of queries and keys."""
    attention = layer.self_attn
    batch, heads = x.size(0), attention.num_heads
    q, k, v = (
        f(y).view(batch, y.size(1), heads, -1).transpose(1, 2)
        for f, y in zip((attention.q_proj, attention.k_proj, attention.v_proj), (x, keys, keys))
    )
    names, extra = attention.encoding.name.split("+"), 0.0
    scale, distance = q.size(-1) ** -0.5, key_at - at.unsqueeze(1)  # (T, S)
    for name in names:
        if name == "transformer_xl":
            term = attention.position_terms["transformer_xl"]
            sinusoids = encoder.position_vectors["transformer_xl"]
            r = term.proj(sinusoids(distance.flatten()).double()).view(*distance.shape, heads, -1)
            extra = extra + torch.einsum("bhtd,tshd->bhts", q + term.v, r) * scale
            extra = extra + torch.einsum("hd,bhsd->bhs", term.u.squeeze(1), k).unsqueeze(2) * scale
        elif name == "shaw":
            term = attention.position_terms["shaw"]
            most = term.max_distance
            rows = term.key_table(distance.clamp(-most, most) + most)  # (T, S, D)
            extra = extra + torch.einsum("bhtd,tsd->bhts", q, rows) * scale
        elif name == "deberta":
            term, most = attention.position_terms["deberta"], 512
            table = encoder.position_vectors["deberta"].table
            far = distance.clamp(-most + 1, most)
            shape = (*distance.shape, heads, -1)
            for_q = term.k_proj(table(most - far)).view(shape)  # δ(i,j), as the query sees it
            for_k = term.q_proj(table(far.clamp(max=most - 1) + most)).view(shape)  # δ(j,i)
            scale = scale / 3**0.5
            extra = extra + torch.einsum("bhtd,tshd->bhts", q, for_q) * scale
            extra = extra + torch.einsum("bhsd,tshd->bhts", k, for_k) * scale
        elif name in ("t5", "alibi", "kerple"):
            found = encoder.position_bias[name].by_distance(distance.flatten())
            extra = extra + found.view(1, heads, *distance.shape)
    if "rotary" in names:
        q, k = rotated(q, at), rotated(k, key_at)
    logits = q @ k.transpose(-2, -1) * scale + extra
    logits = logits.masked_fill(hidden[:, None, None], float("-inf"))
    out = (logits.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
    return attention.out_proj(out)
