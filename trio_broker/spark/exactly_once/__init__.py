"""Writing exactly once: transactions of tasks, which the driver commits by a decision that it writes down first.

``task_transactions`` gives the tasks their transactional ids, ``decision_log`` keeps the decisions in a compacted
topic, ``committer`` decides and ends the transactions in the driver. docs/decisions/0052 has the protocol.
"""
