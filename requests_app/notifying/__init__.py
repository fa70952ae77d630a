"""Who hears of alerts: routes and watchers, messages and how they are sent, the state that Alertmanager gets (docs/alerts.md).

Nothing outside is called in a transaction. A message is a row (``compose``) that is sent at least once (``send``); Alertmanager
and heartbeats are states, which are repeated each minute (``repeat``).
"""
