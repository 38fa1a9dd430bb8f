"""Training by N actors that step environments, S shards that store, and one learner (Ape-X, Horgan et al. 2018).

* The learner is the process that calls `train`. It draws from a `RemoteReplay`, updates, sends priorities back, and
  publishes weights.
* Each of N actors is a loop: step E environments, store the steps, ask the hub.
* The hub is a small process beside the learner. It grants steps to actors as long as all of them together are less than
  a bound ahead of the learner, passes on the newest weights, and collects reports. The learner makes an update once the
  steps that it is due at are stored. So the side that is ahead waits, and there is no other limit.
* The evaluator evaluates copies of the policy while training continues.

If an actor dies, Ray starts it again, with new random streams and new episodes. The steps that it was granted and had
not reported are counted as lost, and other actors take them. Which steps exist, and when they are drawn, depends on
timing: two runs differ.
"""

from replaylab.distributed.training.options import Actors, Shards
from replaylab.distributed.training.train import train

__all__ = ["Actors", "Shards", "train"]
