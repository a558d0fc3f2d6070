"""The explorer: one front end with three hosts: a self-contained page, a notebook widget and a local web app.

`payload` turns analyses and explanations into what the front end reads; `page`, `widget` and `server` deliver it (for
the server, `jobs` and `work` compute it). The front end itself is TypeScript under `front-end/`, built into
`static/explorer.js`.
"""

from normscope.explorer.packing import Precision
from normscope.explorer.page import page_html, write_page

__all__ = ["Precision", "page_html", "write_page"]
