// All addresses are relative, since an application may be mounted below a path. No validator of other hosts is asked.
SwaggerUIBundle({ url: "openapi.json", dom_id: "#docs", deepLinking: true, validatorUrl: null });
