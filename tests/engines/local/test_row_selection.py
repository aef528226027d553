import torch

from engines.local.row_selection import select_rows


def test_all_rows_are_the_tensor_itself_and_some_are_copied() -> None:
    tensor = torch.arange(6).view(3, 2)
    assert select_rows(tensor, [0, 1, 2]) is tensor
    part = select_rows(tensor, [0, 2])
    assert part.tolist() == [[0, 1], [4, 5]]
    part.zero_()
    assert tensor[2].tolist() == [4, 5]
