"""Office files are archives of XML: documents, presentations and workbooks. `package` opens them, within limits."""
