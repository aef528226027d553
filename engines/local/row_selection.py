"""Some rows of a step's tensors, without a copy where that is all of them."""

import torch


def select_rows(tensor: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """The distinct, ascending `rows` of a tensor: itself if they are all of its rows, else a copy of them."""
    if len(rows) == len(tensor):
        return tensor
    return tensor.index_select(0, torch.tensor(rows, device=tensor.device))
