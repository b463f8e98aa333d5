"""The web page: topics, the log's anatomy as a picture, passes, records, why; and a scene to learn by.

`serve` starts it, `app` puts it together from its `parts`, `guard` decides who may do what. `pages`,
`topic_page` and `records_page` are the HTML, which works without scripts; `api` and `scene_api` are the
JSON, all that changes anything included; `answers` turns errors into either. `watch` keeps the overview
fresh, `known` is what the catalog knows of a topic or a pass, `counts` and `latest_views` what only a
scan can tell (`scans` are few at once), `cleanings` runs the cleaner for visitors. `anatomy`, `growth`
and `values` are pure: what is drawn, from what is known. `scene` is a store of the visitor's own, whose
cleaner goes step by step, `scene_state` what is drawn of it; `scenes` has all that are on, `demo` makes a store to look at.

Never: a request to another host, markup made of keys or values, a change without the token.
"""
