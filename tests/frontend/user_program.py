"""A program as a user writes it: `mypy --strict` has nothing to say about it."""

import hcq.torch as torch
import hcq.torch.linalg as linalg
import hcq.torch.nn.functional as F
from hcq import Tensor, jit, nn, optim


class Net(nn.Module):
    def __init__(self) -> None:
        self.inner, self.last = nn.Linear(2, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(F.relu(self.inner(x)))
        return found


net = Net()
optimizer = optim.SGD(net.parameters(), lr=0.1)


@jit
def step(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = F.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.realize()


losses: list[Tensor] = [step(torch.ones(4, 2), torch.zeros(4, 1)) for _ in range(3)]
total: Tensor = torch.stack(losses).sum()
inverse: Tensor = linalg.inv(torch.eye(2, dtype=torch.float32))
shape: tuple[int, ...] = torch.cat([total.reshape(1), inverse.flatten()]).shape
