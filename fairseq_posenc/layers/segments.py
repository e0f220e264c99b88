"""Segments: which text of a pair each token belongs to (BERT, arXiv 1810.04805, section 3.2)."""

from torch import Tensor


def segment_labels(tokens: Tensor, padding: int, separator: int, num_segments: int) -> Tensor:
    """The segment of each token: 0 for [CLS], the first text and its separator, 1 for the second.

    A text ends with a separator.  Adjacent separators all belong to the text before them, so both
    BERT's ``[CLS] a [SEP] b [SEP]`` and RoBERTa's ``<s> a </s> </s> b </s>`` are labelled.

    >>> import torch
    >>> segment_labels(torch.tensor([[0, 7, 8, 2, 9, 2, 1]]), 1, 2, 2)
    tensor([[0, 0, 0, 0, 1, 1, 0]])
    >>> segment_labels(torch.tensor([[0, 7, 8, 2, 2, 9, 2]]), 1, 2, 2)
    tensor([[0, 0, 0, 0, 0, 1, 1]])

    Args:
        tokens: (B, T), padded on either side.
        padding: index of the padding symbol.
        separator: index of the separator.
        num_segments: number of segments; further texts belong to the last.

    Returns:
        labels (B, T), int64; 0 for padding.
    """
    real, ends = tokens.ne(padding), tokens.eq(separator)
    begins = ends.roll(1, dims=1) & ~ends & real  # a token after a separator
    begins[:, :1] = False
    texts = begins.long().cumsum(dim=1).clamp(max=num_segments - 1)
    return texts.masked_fill(~real, 0)


def first_text_lengths(tokens: Tensor, padding: int, separator: int) -> Tensor:
    """The number of tokens of the first text of a pair, [CLS] and separators included.

    >>> import torch
    >>> first_text_lengths(torch.tensor([[0, 7, 8, 2, 9, 2, 1]]), 1, 2)
    tensor([[4]])

    Args:
        tokens: (B, T), padded on either side.
        padding: index of the padding symbol.
        separator: index of the separator.

    Returns:
        numbers (B, 1), int64; of a text without another, all of its tokens.
    """
    first = segment_labels(tokens, padding, separator, 2).eq(0) & tokens.ne(padding)
    return first.sum(dim=1, keepdim=True)
